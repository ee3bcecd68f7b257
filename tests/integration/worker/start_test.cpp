// What a worker says while it starts: the real program on things that cannot work, and the admin port during a load.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>

#include "tests/integration/http/fixture.hpp"
#include "tests/support/tiny_model.hpp"
#include "worker/app/admin_port.hpp"
#include "worker/app/identity.hpp"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string sentence;   // the last line of standard error
  std::string text;       // all of it that is no log lines
  std::size_t lines = 0;  // that are no log lines
};

/// A socket that holds a port of loopback.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = std::to_string(ntohs(address.sin_port));
  }
  ~TakenPort() { ::close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  std::string port;

 private:
  int socket_;
};

class WorkerStart : public ::testing::Test {
 protected:
  WorkerStart() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-start-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    penstock::test::write_tiny_gguf({}, model());
  }
  ~WorkerStart() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }

  /// Runs the program to its end, at most 20 s; later options win.
  Outcome run(const std::vector<std::string>& more) {
    std::vector<std::string> words{PENSTOCK_WORKER, "--model", model().string(), "--kv-pool", "1MiB", "--threads", "1"};
    std::vector<std::string> ports{"--control-port", "--admin-port", "--kv-port"};
    for (const std::string& option : ports) {
      if (std::find(more.begin(), more.end(), option) == more.end()) words.insert(words.end(), {option, "0"});
    }
    for (std::size_t i = 0; i < more.size(); i += 2) {
      const auto found = std::find(words.begin(), words.end(), more[i]);
      if (found != words.end()) words.erase(found, found + 2);
      words.insert(words.end(), {more[i], more[i + 1]});
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string errors = (folder_ / "stderr").string();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const int out = ::open(errors.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
      ::dup2(out, 2);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    Outcome outcome;
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    std::ifstream in(errors);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("time=")) continue;
      outcome.sentence = line;
      outcome.text += line + "\n";
      ++outcome.lines;
    }
    return outcome;
  }

  void expect_refusal(const std::vector<std::string>& more, const std::string& part) {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.sentence;
    EXPECT_EQ(outcome.lines, 1u) << outcome.sentence;
    EXPECT_THAT(outcome.sentence, HasSubstr("penstock-worker: "));
    EXPECT_THAT(outcome.sentence, HasSubstr(part));
  }

  /// A setting that is wrong: its sentence, then where to read more.
  void expect_bad_setting(const std::vector<std::string>& more, const std::string& part) {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.lines, 2u) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(part));
  }

  std::filesystem::path folder_;
};

TEST_F(WorkerStart, AModelThatIsNotThereOrNotWholeIsOneSentence) {
  const std::string absent = (folder_ / "absent.gguf").string();
  expect_refusal({"--model", absent}, "penstock-worker: " + absent + ": cannot be opened: No such file or directory");
  std::filesystem::resize_file(model(), std::filesystem::file_size(model()) - 1);
  expect_refusal({}, "reaches beyond the end of the file");
  std::filesystem::resize_file(model(), 0);
  expect_refusal({}, "is empty");
}

TEST_F(WorkerStart, PortsThatAreTakenAreOneSentence) {
  const TakenPort taken;
  for (const char* option : {"--control-port", "--admin-port", "--kv-port"}) {
    expect_refusal({option, taken.port}, taken.port);
  }
}

TEST_F(WorkerStart, KvOffLoopbackNeedsATrustedNetworkByNameAndATicketKey) {
  expect_bad_setting({"--kv-address", "0.0.0.0"}, "kv-address: 0.0.0.0 is not loopback and KV travels in plaintext");
  const std::string pem = (folder_ / "none.pem").string();
  expect_bad_setting(
      {"--kv-address", "0.0.0.0", "--kv-tls-cert-file", pem, "--kv-tls-key-file", pem, "--kv-tls-ca-file", pem},
      "say --kv-transfer trusted-fabric");
  expect_bad_setting({"--kv-address", "0.0.0.0", "--kv-transfer", "trusted-fabric"}, "ticket-key-file: is needed");
}

TEST_F(WorkerStart, KvTlsThatIsNotWholeIsOneSentence) {
  const std::string pem = (folder_ / "none.pem").string();
  expect_bad_setting({"--kv-tls-ca-file", pem}, "kv-tls: needs cert-file, key-file and ca-file");
  expect_refusal({"--kv-tls-cert-file", pem, "--kv-tls-key-file", pem, "--kv-tls-ca-file", pem},
                 "the certificate file " + pem + " can't be used");
}

TEST_F(WorkerStart, AKvPoolThatCannotBeIsOneSentence) {
  expect_refusal({"--kv-pool", "1KiB"}, "does not hold a single KV block");
  expect_refusal({"--kv-pool", "100TiB", "--executor", "cpu"}, "for the KV pool; lower --kv-pool");
}

// In builds without it by that, in builds with it since the tiny model's heads have 32 values.
TEST_F(WorkerStart, TheCudaExecutorIsRefusedByNameWhereItCannotRun) {
  expect_refusal({"--executor", "cuda", "--kv-transfer", "off"}, "CUDA executor");
  expect_refusal({"--executor", "cuda"}, "CUDA executor");
  expect_bad_setting({"--executor", "cuda", "--tensor-parallel", "2"},
                     "kv-transfer: KV that several GPUs share can't be transferred yet");
  expect_bad_setting({"--executor", "cuda", "--kv-transfer", "off", "--tensor-parallel", "3"},
                     "tensor-parallel: the cuda executor shares a model among 1, 2, 4 or 8 GPUs");
}

std::string get(std::uint16_t port, const std::string& path) {
  http::RawClient client(port);
  client.send("GET " + path + " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  return client.read_all();
}

TEST(AdminPort, SaysHowMuchIsLoadedWhileItLoads) {
  WorkerConfig config;
  config.admin_port = 0;
  AdminPort admin(config, log::Logger());
  const std::uint16_t port = admin.listen();
  std::string ready, metrics;
  admin.serve_while([&] {
    admin.set_load_progress(37, 100);
    ready = get(port, "/readyz");
    metrics = get(port, "/metrics");
  });
  EXPECT_THAT(ready, HasSubstr("HTTP/1.1 503"));
  EXPECT_THAT(ready, HasSubstr("loading the model: 37 %"));
  EXPECT_THAT(metrics, HasSubstr("penstock_worker_load_progress_ratio 0.37"));
}

TEST(AdminPort, AFailedLoadIsPassedOn) {
  WorkerConfig config;
  config.admin_port = 0;
  AdminPort admin(config, log::Logger());
  admin.listen();
  EXPECT_THROW(admin.serve_while([] { throw std::runtime_error("bad file"); }), std::runtime_error);
}

// Workers of equal fingerprints read each other's KV as their own.
TEST(LayoutFingerprint, DiffersWithEverythingThatKvBytesDependOn) {
  const protocol::ModelCard card;
  const KvGeometry geometry{2, 3, 16, 64, KvDtype::bf16};
  std::vector<KvGeometry> others(6, geometry);
  others[0].kv_heads = 4;
  others[1].layers = 4;
  others[2].block_tokens = 32;
  others[3].head_dim = 128;
  others[4].dtype = KvDtype::f16;
  others[5].key_order = KeyOrder::pairs;
  for (const KvGeometry& other : others) EXPECT_NE(layout_fingerprint(card, other), layout_fingerprint(card, geometry));
  EXPECT_EQ(layout_fingerprint(card, geometry), layout_fingerprint(card, geometry));
}

}  // namespace
}  // namespace penstock::worker
