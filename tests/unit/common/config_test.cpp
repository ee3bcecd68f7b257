#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>
#include <span>

#include "common/config/load.hpp"

namespace penstock::config {

enum class Policy { kv_aware, random };
std::span<const std::pair<std::string_view, Policy>> config_names(Policy) {
  static constexpr std::array<std::pair<std::string_view, Policy>, 2> names{
      {{"kv-aware", Policy::kv_aware}, {"random", Policy::random}}};
  return names;
}

namespace {

struct TlsConfig {
  std::string cert_file;
  std::string key;
  void fields(Fields& f) {
    f.field("cert-file", cert_file, "Certificate chain.");
    f.field("key", key, "Key.", Show::redacted);
  }
};

struct TestConfig {
  std::uint16_t port = 8000;
  Duration grace = std::chrono::seconds(30);
  ByteSize cache = 1_GiB;
  double ratio = 0.5;
  bool insecure = false;
  Policy policy = Policy::kv_aware;
  std::vector<std::string> workers;
  std::optional<std::int64_t> seed;
  TlsConfig tls;

  void fields(Fields& f) {
    f.field("port", port, "Port of the API.");
    f.field("grace", grace, "Drain time.");
    f.field("cache", cache, "Bytes of cache.");
    f.field("ratio", ratio, "A ratio.");
    f.field("insecure", insecure, "No TLS.");
    f.field("policy", policy, "How to choose.");
    f.field("workers", workers, "Addresses.");
    f.field("seed", seed, "Seed.");
    f.section("tls", tls);
  }
  void validate(Problems& problems) const {
    if (ratio > 1) problems.add("ratio", "must be at most 1");
  }
};

struct Files {
  std::string path;
  explicit Files(const std::string& text) {
    char name[] = "/tmp/penstock-config-XXXXXX";
    close(mkstemp(name));
    path = name;
    std::ofstream(path) << text;
  }
  ~Files() { unlink(path.c_str()); }
};

Loaded<TestConfig> load_with(std::vector<const char*> arguments, std::map<std::string, std::string> variables = {}) {
  arguments.insert(arguments.begin(), "penstock-test");
  return load<TestConfig>({"penstock-test", "1.2.3", "A test."}, static_cast<int>(arguments.size()), arguments.data(),
                          [=](const std::string& name) -> std::optional<std::string> {
                            auto found = variables.find(name);
                            if (found == variables.end()) return std::nullopt;
                            return found->second;
                          });
}

std::vector<std::string> yaml_problems(std::string_view text) {
  TestConfig config;
  Fields fields;
  config.fields(fields);
  Problems problems;
  apply_yaml(text, fields, problems);
  return problems.list();
}

TEST(Config, OptionBeatsEnvironmentBeatsFileBeatsDefault) {
  Files file("port: 1\ngrace: 1s\ncache: 1KiB\n");
  const std::string config = "--config=" + file.path;
  auto loaded = load_with({config.c_str(), "--port", "3"}, {{"PENSTOCK_PORT", "2"}, {"PENSTOCK_GRACE", "2s"}});
  ASSERT_FALSE(loaded.outcome.exit_code) << loaded.outcome.error_output;
  EXPECT_EQ(loaded.config.port, 3);
  EXPECT_EQ(loaded.config.grace, std::chrono::seconds(2));
  EXPECT_EQ(loaded.config.cache, 1_KiB);
  EXPECT_EQ(loaded.config.ratio, 0.5);
}

TEST(Config, OneDeclarationServesAllSources) {
  Files file("tls:\n  cert-file: a.pem\nworkers: [a:1, b:2]\n");
  const std::string config = "--config=" + file.path;
  EXPECT_EQ(load_with({config.c_str()}).config.tls.cert_file, "a.pem");
  EXPECT_EQ(load_with({config.c_str()}).config.workers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(load_with({"--tls-cert-file", "b.pem"}).config.tls.cert_file, "b.pem");
  EXPECT_EQ(load_with({}, {{"PENSTOCK_TLS_CERT_FILE", "c.pem"}}).config.tls.cert_file, "c.pem");
  EXPECT_EQ(load_with({"--set", "tls.cert-file=d.pem"}).config.tls.cert_file, "d.pem");
  EXPECT_EQ(load_with({"--workers", "a:1", "--workers", "b:2"}).config.workers.size(), 2u);
  EXPECT_EQ(load_with({"--set", "workers=a:1,b:2"}).config.workers.size(), 2u);
  EXPECT_EQ(load_with({}, {{"PENSTOCK_WORKERS", "a:1,b:2,c:3"}}).config.workers.size(), 3u);
}

TEST(Config, FlagsStandAloneOrTakeAValue) {
  EXPECT_TRUE(load_with({"--insecure"}).config.insecure);
  EXPECT_TRUE(load_with({"--insecure=true"}).config.insecure);
  EXPECT_FALSE(load_with({"--insecure=false"}, {{"PENSTOCK_INSECURE", "true"}}).config.insecure);
  EXPECT_TRUE(load_with({"--insecure", "--port", "5"}).config.insecure);
  EXPECT_EQ(load_with({"--insecure", "--port", "5"}).config.port, 5);
}

TEST(Config, EnumsAndOptionalsParse) {
  EXPECT_EQ(load_with({"--policy", "random"}).config.policy, Policy::random);
  EXPECT_EQ(load_with({}).config.seed, std::nullopt);
  EXPECT_EQ(load_with({"--seed", "-7"}).config.seed, -7);
}

TEST(Config, ReportsAllProblemsAtOnce) {
  Files file("prot: 1\ntls:\n  certfile: x\n  key: [1]\nport: many\n");
  const std::string config = "--config=" + file.path;
  auto loaded = load_with({config.c_str(), "--grace", "10", "--polcy", "--policy", "best", "--set", "nothing"},
                          {{"PENSTOCK_CACHE", "1XB"}});
  EXPECT_EQ(loaded.outcome.exit_code, 2);
  const std::string& text = loaded.outcome.error_output;
  for (std::string_view part :
       {"prot: unknown key", "tls.certfile: unknown key", "tls.key: must be a value (text), is a list",
        "port: must be an integer", "--grace: must be a duration", "--polcy: unknown option",
        "--policy: must be one of kv-aware, random, not \"best\"", "--set nothing: must be KEY=VALUE",
        "PENSTOCK_CACHE: must be a size"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
}

TEST(Config, RangesAndValidateAreChecked) {
  EXPECT_NE(load_with({"--port", "65536"}).outcome.error_output.find("--port: must be between 0 and 65535"),
            std::string::npos);
  EXPECT_NE(load_with({"--port", "-1"}).outcome.error_output.find("--port: must not be negative"), std::string::npos);
  EXPECT_NE(load_with({"--ratio", "1.5"}).outcome.error_output.find("ratio: must be at most 1"), std::string::npos);
  EXPECT_NE(load_with({"--ratio", "nan"}).outcome.error_output.find("--ratio: must be a number"), std::string::npos);
}

TEST(Config, PrintConfigRedactsAndReadsBack) {
  auto printed = load_with({"--print-config", "--tls-key", "hunter2", "--workers", "a: b", "--policy", "random",
                            "--port=9", "--tls-cert-file", "yes # no"});
  ASSERT_EQ(printed.outcome.exit_code, 0);
  EXPECT_EQ(printed.outcome.output.find("hunter2"), std::string::npos);
  EXPECT_NE(printed.outcome.output.find("key: (redacted)"), std::string::npos);
  TestConfig config;
  Fields fields;
  config.fields(fields);
  Problems problems;
  apply_yaml(printed.outcome.output, fields, problems);
  EXPECT_TRUE(problems.empty()) << problems.to_string() << printed.outcome.output;
  EXPECT_EQ(config.port, 9);
  EXPECT_EQ(config.workers, std::vector<std::string>{"a: b"});
  EXPECT_EQ(config.tls.cert_file, "yes # no");
  EXPECT_EQ(config.policy, Policy::random);
}

TEST(Config, HelpAndVersionExitWithZero) {
  auto help = load_with({"--help"});
  EXPECT_EQ(help.outcome.exit_code, 0);
  for (std::string_view part : {"--tls-cert-file", "Drain time.", "30s", "kv-aware, random", "--print-config"}) {
    EXPECT_NE(help.outcome.output.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(load_with({"--version"}).outcome.output, "penstock-test 1.2.3\n");
}

TEST(Config, MissingFileIsOneSentence) {
  auto loaded = load_with({"--config", "/nonexistent.yaml"});
  EXPECT_EQ(loaded.outcome.exit_code, 2);
  EXPECT_NE(loaded.outcome.error_output.find("--config: the file /nonexistent.yaml can't be read"), std::string::npos);
}

TEST(ConfigYaml, HostileTextIsAProblemNotACrash) {
  EXPECT_TRUE(yaml_problems("").empty());
  EXPECT_TRUE(yaml_problems("# nothing\n").empty());
  for (const std::string& text : {std::string("[1, 2]"),
                                  std::string("just text"),
                                  std::string("port: 1\nport: 2"),
                                  std::string("a: b: c"),
                                  std::string("port: &a [*a]"),
                                  std::string("--- \nport: 1\n---\nport: 2\n"),
                                  std::string("? [a]\n: 1"),
                                  std::string("port:"),
                                  std::string("tls: 5"),
                                  std::string("workers: a"),
                                  std::string("workers: [{a: b}]"),
                                  std::string("\x01\x02"),
                                  std::string(","),
                                  std::string(",flag: yes\na: 1\n"),
                                  std::string("]"),
                                  std::string("a: 1\n,"),
                                  std::string("--- a\n}"),
                                  std::string(20'000, '['),
                                  std::string(20'000, '{'),
                                  "port: " + std::string(2 << 20, '1')}) {
    EXPECT_FALSE(yaml_problems(text).empty()) << text.substr(0, 64);
  }
}

TEST(ConfigUnits, DurationsAndSizes) {
  EXPECT_EQ(*parse_duration("10s"), std::chrono::seconds(10));
  EXPECT_EQ(*parse_duration("1.5ms"), std::chrono::microseconds(1500));
  EXPECT_EQ(*parse_duration("2h"), std::chrono::hours(2));
  EXPECT_EQ(*parse_duration("0"), Duration::zero());
  for (std::string_view text : {"10", "", "s", "-1s", "1 parsec", "1e3s", "inf s", "nan", "9999999999999d", "1s2"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
  EXPECT_EQ(parse_byte_size("4096")->bytes, 4096u);
  EXPECT_EQ(parse_byte_size("1GiB")->bytes, 1ull << 30);
  EXPECT_EQ(parse_byte_size("1.5 KiB")->bytes, 1536u);
  EXPECT_EQ(parse_byte_size("2GB")->bytes, 2'000'000'000u);
  for (std::string_view text : {"", "-1", "1Gi", "x", "99999999999TiB", "1.5"})
    EXPECT_FALSE(parse_byte_size(text)) << text;
}

TEST(ConfigUnits, FormattedTextReadsBack) {
  for (std::int64_t count : {1ll, 1'000ll, 1'500'000ll, 1'000'000'000ll, 90'000'000'000ll, 7'200'000'000'000ll}) {
    EXPECT_EQ(*parse_duration(format_duration(Duration(count))), Duration(count));
  }
  for (std::uint64_t bytes : {0ull, 1ull, 1024ull, 1536ull, 1ull << 30, 3ull << 40}) {
    EXPECT_EQ(parse_byte_size(format_byte_size({bytes}))->bytes, bytes);
  }
  EXPECT_EQ(format_duration(std::chrono::seconds(90)), "90s");
  EXPECT_EQ(format_byte_size({1 << 20}), "1MiB");
}

TEST(ConfigDocs, MarkdownListsEverySetting) {
  TestConfig config;
  Fields fields;
  config.fields(fields);
  const std::string text = to_markdown({"penstock-test", "", ""}, fields);
  EXPECT_NE(
      text.find("| `--tls-cert-file` (`tls.cert-file`) | `PENSTOCK_TLS_CERT_FILE` | text |  | Certificate chain. |"),
      std::string::npos)
      << text;
}

}  // namespace
}  // namespace penstock::config
