// The worker-to-worker control channel between two ends of this process: HELLO and its answer, ends, and who is let in
// over TLS.
#include "worker/transfer/channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/transfer/authority.hpp"
#include "worker/core/transfer/wire.hpp"

namespace penstock::worker::transfer::test {
namespace {

using ::testing::HasSubstr;

base::Bytes message(std::uint32_t sequence) {
  return encode({random_id<InstanceId>(), random_id<InstanceId>(), {}, sequence, GoodbyeMessage{}});
}

/// One worker's channels, and the test's thread as its service's.
class End final : public ChannelEvents {
 public:
  explicit End(ChannelTls tls = {}) {
    channels_.emplace(std::move(tls), [this](std::function<void()> call) { post(std::move(call)); }, *this);
    channels_->listen("127.0.0.1", 0);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(channels_->port()); }
  std::uint16_t port() const { return channels_->port(); }
  Channels& channels() { return *channels_; }
  void stop() { channels_.reset(); }

  /// Runs what was posted until `done` holds; false if it doesn't within ten seconds.
  template <class Condition>
  bool run_until(Condition done) {
    while (!done()) {
      std::function<void()> call;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !calls_.empty(); })) return false;
        call = std::move(calls_.front());
        calls_.pop_front();
      }
      call();
    }
    return true;
  }

  HelloResult on_hello(base::BytesView frame) override {
    hello.assign(frame.begin(), frame.end());
    return answer;
  }
  void on_reply(LinkId, base::BytesView frame) override { reply.assign(frame.begin(), frame.end()); }
  void on_closed(LinkId link, const std::string& why) override { closed.emplace_back(link, why); }
  void on_dial_refused(LinkId link, const std::string& why) override { refused.emplace_back(link, why); }
  void on_stranger(const std::string& who_and_why) override { strangers.push_back(who_and_why); }

  HelloResult answer{7, message(2)};
  base::Bytes hello, reply;
  std::vector<std::pair<LinkId, std::string>> closed, refused;
  std::vector<std::string> strangers;

 private:
  void post(std::function<void()> call) {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  std::optional<Channels> channels_;
};

void expect_hello_and_end(End& prefill, End& decode) {
  const base::Bytes hello = message(1);
  decode.channels().dial(1, prefill.address(), hello);
  ASSERT_TRUE(prefill.run_until([&] { return !prefill.hello.empty(); }));
  EXPECT_EQ(prefill.hello, hello);
  ASSERT_TRUE(decode.run_until([&] { return !decode.reply.empty() || !decode.closed.empty(); }));
  EXPECT_EQ(decode.reply, prefill.answer.reply);
  prefill.stop();
  ASSERT_TRUE(decode.run_until([&] { return !decode.closed.empty(); })) << "the end tells of a dead peer";
  EXPECT_EQ(decode.closed[0].first, 1u);
}

TEST(KvChannel, CarriesHelloItsAnswerAndTheEnd) {
  End prefill, decode;
  expect_hello_and_end(prefill, decode);
}

TEST(KvChannel, MutualTlsCarriesTheSame) {
  const Authority authority;
  End prefill(authority.member()), decode(authority.member());
  expect_hello_and_end(prefill, decode);
}

TEST(KvChannel, AClosedLinkIsTheOtherSidesEndAndNotTold) {
  End prefill, decode;
  decode.channels().dial(1, prefill.address(), message(1));
  ASSERT_TRUE(prefill.run_until([&] { return !prefill.hello.empty(); }));
  ASSERT_TRUE(decode.run_until([&] { return !decode.reply.empty(); }));
  decode.channels().close(1);
  ASSERT_TRUE(prefill.run_until([&] { return !prefill.closed.empty(); }));
  EXPECT_EQ(prefill.closed[0].first, 7u);
  EXPECT_TRUE(decode.closed.empty());
}

TEST(KvChannel, ARejectedPeerGetsTheAnswerAndThenTheEnd) {
  End prefill, decode;
  prefill.answer.link = 0;
  decode.channels().dial(1, prefill.address(), message(1));
  ASSERT_TRUE(prefill.run_until([&] { return !prefill.hello.empty(); }));
  ASSERT_TRUE(decode.run_until([&] { return !decode.closed.empty(); }));
  EXPECT_EQ(decode.reply, prefill.answer.reply);
}

TEST(KvChannel, WhoCantBeReachedOrIsNoAddressIsTold) {
  End decode;
  decode.channels().dial(1, "127.0.0.1:1", message(1));
  decode.channels().dial(2, "nowhere", message(1));
  decode.channels().dial(3, "127.0.0.1:port", message(1));
  EXPECT_TRUE(decode.run_until([&] { return decode.closed.size() == 3; }));
}

/// Dials a worker with `host` as one with `stranger`; no HELLO passes. What each side is told of it, host first.
std::pair<std::string, std::string> refusal(ChannelTls host, ChannelTls stranger) {
  End prefill(std::move(host)), decode(std::move(stranger));
  decode.channels().dial(1, prefill.address(), message(1));
  EXPECT_TRUE(decode.run_until([&] { return decode.closed.size() + decode.refused.size() > 0; }));
  EXPECT_TRUE(prefill.run_until([&] { return !prefill.strangers.empty(); }));
  EXPECT_TRUE(decode.reply.empty());
  EXPECT_TRUE(prefill.hello.empty());
  return {prefill.strangers.empty() ? "" : prefill.strangers[0],
          decode.refused.empty() ? "" : decode.refused[0].second};
}

TEST(KvChannel, WhoHasNoCertificateOfTheAuthorityIsNotLetIn) {
  const Authority authority, other;
  EXPECT_THAT(refusal(authority.member(), {}).first, HasSubstr("TLS handshake"));  // plain text
  EXPECT_THAT(refusal(authority.member(), authority.nobody()).first, HasSubstr("did not return a certificate"));
  EXPECT_THAT(refusal(authority.member(), other.member(authority)).first, HasSubstr("signature failure"));
}

TEST(KvChannel, AnExpiredCertificateOpensNothing) {
  const Authority authority;
  http::CertificateWish expired;
  expired.begins_s = -7200;
  expired.ends_s = -3600;
  EXPECT_THAT(refusal(authority.member(), authority.member(expired)).first, HasSubstr("certificate has expired"));
  EXPECT_THAT(refusal(authority.member(expired), authority.member()).second, HasSubstr("certificate has expired"));
}

TEST(KvChannel, AnOwnerThatIsNotTrustedOrSpeaksNoTlsHearsNoHello) {
  const Authority authority, other;
  EXPECT_THAT(refusal(other.member(), authority.member()).second, HasSubstr("signature failure"));
  EXPECT_THAT(refusal({}, authority.member()).first, HasSubstr("no HELLO"));
}

TEST(KvChannel, TheNameInTheCertificateIsChecked) {
  const Authority authority;
  http::CertificateWish elsewhere;
  elsewhere.names = "DNS:penstock-worker";
  EXPECT_THAT(refusal(authority.member(elsewhere), authority.member()).second, HasSubstr("certificate verify failed"));
  End prefill(authority.member(elsewhere)), decode(authority.member(authority, {}, "penstock-worker"));
  expect_hello_and_end(prefill, decode);
}

TEST(KvChannel, GarbageEndsTheChannel) {
  End prefill;
  boost::asio::io_context io;
  for (const std::string& text : {std::string(200, 'x'), "GET / HTTP/1.1\r\n\r\n" + std::string(100, ' ')}) {
    boost::asio::ip::tcp::socket socket(io);
    socket.connect({boost::asio::ip::make_address("127.0.0.1"), prefill.port()});
    boost::asio::write(socket, boost::asio::buffer(text));
    boost::system::error_code code;
    std::array<char, 16> buffer;
    EXPECT_EQ(socket.read_some(boost::asio::buffer(buffer), code), 0u);
    EXPECT_TRUE(code);
  }
  EXPECT_TRUE(prefill.hello.empty());
}

}  // namespace
}  // namespace penstock::worker::transfer::test
