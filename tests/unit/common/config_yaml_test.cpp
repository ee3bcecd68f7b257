#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "common/config/yaml_value.hpp"

namespace penstock::config {
namespace {

std::string json_of(std::string_view text, const YamlLimits& limits = {}) {
  auto documents = parse_yaml(text, limits);
  if (!documents) return "error: " + documents.error().message;
  std::string all;
  for (const auto& document : *documents) all += (all.empty() ? "" : " ") + boost::json::serialize(document);
  return all;
}

TEST(YamlValue, PlainScalarsHaveTypesAndQuotedOnesAreText) {
  EXPECT_EQ(json_of("[1, -2, +3, 1.5, true, False, null, ~, abc, 8Gi, 50%, inf, nan, .5, 0x10, yes]"),
            R"([1,-2,3,1.5E0,true,false,null,null,"abc","8Gi","50%","inf","nan",".5","0x10","yes"])");
  EXPECT_EQ(json_of("['1', \"true\", 'null', '']"), R"(["1","true","null",""])");
  EXPECT_EQ(json_of("[18446744073709551615, -]"), R"([18446744073709551615,"-"])");
  EXPECT_EQ(json_of("a: |\n  two\n  lines\nb: >-\n  one\n  line\nc:"),
            "{\"a\":\"two\\nlines\\n\",\"b\":\"one line\",\"c\":null}");
}

TEST(YamlValue, KeepsTheOrderOfKeysAndReadsEveryDocument) {
  EXPECT_EQ(json_of("z: 1\na: {c: [], b: {}}\n---\n---\nsecond: 2\n"), R"({"z":1,"a":{"c":[],"b":{}}} {"second":2})");
  EXPECT_EQ(json_of("# only a comment\n"), "");
}

TEST(YamlValue, RefusesWithTheLine) {
  EXPECT_EQ(json_of("a: 1\nb: 2\na: 3\n"), "error: line 3: the key 'a' is given twice");
  EXPECT_EQ(json_of("a: 1\n[1]: 2\n").substr(0, 13), "error: line 2");
  EXPECT_NE(json_of("a: [1, 2\n").find("bad YAML"), std::string::npos);
  EXPECT_NE(json_of("---\na: 1\n---\n,\n").find("error: line 4"), std::string::npos);
  EXPECT_NE(json_of("a: *nothing\n").find("error: line 1"), std::string::npos);
}

TEST(YamlValue, StopsAtTheLimits) {
  EXPECT_NE(json_of("abcd", {.text_bytes_max = 3}).find("larger than 3 bytes"), std::string::npos);
  EXPECT_NE(json_of("[[[1]]]", {.depth_max = 3}).find("nested too deep"), std::string::npos);
  EXPECT_EQ(json_of("[[[1]]]", {.depth_max = 4}), "[[[1]]]");
  // Aliases that double at each step: 2^20 values from a few lines.
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string before = std::to_string(i - 1), now = std::to_string(i);
    laughs += "a" + now + ": &a" + now + " [*a" + before + ", *a" + before + "]\n";
  }
  EXPECT_NE(json_of(laughs).find("too many values"), std::string::npos);
  EXPECT_NE(json_of(std::string(100'000, '[')).find("error"), std::string::npos);
}

}  // namespace
}  // namespace penstock::config
