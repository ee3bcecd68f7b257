#include "common/async/tls_renewal.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

#include "common/async/tls_facts.hpp"
#include "common/http/client.hpp"
#include "common/time/wall_clock.hpp"
#include "tests/integration/http/fixture.hpp"
#include "tests/integration/http/test_certificate.hpp"

namespace penstock::async {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace fs = std::filesystem;

/// As Kubernetes mounts a Secret: files are links into a folder that is replaced as a whole.
class Secret {
 public:
  Secret() {
    std::string pattern = "/tmp/penstock-tls-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    renew(3600);
    for (const char* name : {"tls.crt", "tls.key"}) {
      fs::create_symlink(fs::path("..data") / name, folder_ / name);
    }
  }
  ~Secret() { fs::remove_all(folder_); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  void renew(long ends_s) {
    const fs::path made = next();
    http::CertificateWish wish;
    wish.ends_s = ends_s;
    http::write_test_certificate(made / "tls.crt", made / "tls.key", wish);
    turn(made);
  }
  void spoil() {
    const fs::path made = next();
    for (const char* name : {"tls.crt", "tls.key"}) std::ofstream(made / name) << "nothing of use\n";
    turn(made);
  }
  TlsFiles files() const { return {.certificate_file = folder_ / "tls.crt", .key_file = folder_ / "tls.key"}; }
  TlsContextPtr server() const { return make_tls_server(files()).value(); }
  TlsContextPtr client() const { return make_tls_client(TlsFiles{.ca_file = folder_ / "tls.crt"}).value(); }

 private:
  fs::path next() {
    const fs::path made = folder_ / std::to_string(++count_);
    fs::create_directory(made);
    return made;
  }
  void turn(const fs::path& made) {
    fs::create_directory_symlink(made.filename(), folder_ / "..new");
    fs::rename(folder_ / "..new", folder_ / "..data");
  }
  fs::path folder_;
  int count_ = 0;
};

std::int64_t days_left(const TlsContextPtr& tls) {
  return (certificate_end_s(tls).value_or(0) - wall_now().unix_s + 43'200) / 86'400;
}

TEST(TlsRenewal, NewFilesAreTakenAndOldOnesAreNotReadAgain) {
  Secret secret;
  const auto tls = secret.server();
  EXPECT_FALSE(renew(tls).value());
  secret.renew(10 * 86'400);
  EXPECT_TRUE(renew(tls).value());
  EXPECT_EQ(days_left(tls), 10);
  EXPECT_FALSE(renew(tls).value());
}

TEST(TlsRenewal, UnusableFilesLeaveWhatWasGoodAndAreReadAgain) {
  Secret secret;
  const auto tls = secret.server();
  secret.spoil();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(renew(tls));
  EXPECT_EQ(days_left(tls), 0);
  secret.renew(10 * 86'400);
  EXPECT_TRUE(renew(tls).value());
  EXPECT_EQ(days_left(tls), 10);
}

asio::awaitable<void> answer(http::Request, http::ResponseWriter& writer) {
  (void)co_await writer.send(http::text_response(200, "ok"));
}

asio::awaitable<void> ask_before_and_after(Secret& secret, TlsContextPtr server, std::uint16_t port) {
  http::Client early({.host = "localhost", .port = port, .tls = secret.client()});
  EXPECT_TRUE(co_await early.request(http::ClientRequest(), 5s));
  secret.renew(10 * 86'400);
  EXPECT_TRUE(renew(server).value());
  EXPECT_TRUE(co_await early.request(http::ClientRequest(), 5s)) << "a connection outlives the certificate";
  http::Client late({.host = "localhost", .port = port, .tls = secret.client()});
  EXPECT_TRUE(co_await late.request(http::ClientRequest(), 5s)) << "it trusts the new certificate only";
}

TEST(TlsRenewal, NewConnectionsSeeTheNewCertificate) {
  Secret secret;
  const auto tls = secret.server();
  http::ServerFixture server(answer, {.tls = tls});
  asio::io_context io;
  std::exception_ptr failure;
  asio::co_spawn(io, ask_before_and_after(secret, tls, server.port),
                 [&](const std::exception_ptr& thrown) { failure = thrown; });
  io.run_for(20s);
  EXPECT_FALSE(failure);
  EXPECT_EQ(server.probe.connections_total.value(), 2);
}

TEST(TlsRenewal, ItsThreadTellsOfEachChangeOnce) {
  Secret secret;
  const auto tls = secret.server();
  secret.spoil();
  std::promise<void> spoilt, renewed;
  std::atomic<int> problems = 0;
  const TlsRenewal renewal({{"clients", tls}, {"none", nullptr}}, 1ms,
                           [&](const TlsRenewal::Watched& watched, const Result<void>& outcome) {
                             EXPECT_EQ(watched.name, "clients");
                             if (outcome) {
                               renewed.set_value();
                             } else if (problems++ == 0) {
                               spoilt.set_value();
                             }
                           });
  ASSERT_EQ(spoilt.get_future().wait_for(10s), std::future_status::ready);
  secret.renew(10 * 86'400);
  ASSERT_EQ(renewed.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_EQ(problems, 1);
  EXPECT_EQ(days_left(tls), 10);
}

}  // namespace
}  // namespace penstock::async
