#include "common/async/listen.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>

namespace penstock::async {
namespace {

using asio::ip::tcp;

struct Listening {
  asio::io_context io;
  tcp::acceptor acceptor{io};
  Result<void> on(const std::string& address, std::uint16_t port, ReusePort reuse = ReusePort::no) {
    return listen(acceptor, address, port, reuse);
  }
  std::uint16_t port() const { return acceptor.local_endpoint().port(); }
};

TEST(Listen, TakesConnectionsOnThePortThatItGot) {
  Listening one;
  ASSERT_TRUE(one.on("127.0.0.1", 0));
  tcp::socket client(one.io);
  client.connect(one.acceptor.local_endpoint());
  EXPECT_TRUE(one.acceptor.accept().is_open());
}

TEST(Listen, SaysWhyItCannot) {
  Listening one, other;
  ASSERT_TRUE(one.on("127.0.0.1", 0));
  const std::string number = std::to_string(one.port());
  const auto taken = other.on("127.0.0.1", one.port());
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::unavailable);
  EXPECT_EQ(taken.error().message, "port " + number + " is in use: end the program that listens on 127.0.0.1:" +
                                       number + " or choose another port");
  EXPECT_FALSE(other.acceptor.is_open()) << "may be tried again";
  EXPECT_EQ(other.on("localhost", 0).error().message, "\"localhost\" is not an IP address to listen on");
  EXPECT_EQ(other.on("192.0.2.1", 0).error().message, "this machine has no address 192.0.2.1");
  EXPECT_TRUE(other.on("127.0.0.1", 0));
}

TEST(Listen, SharesAPortOnlyIfAllWantTo) {
  Listening one, other, third;
  ASSERT_TRUE(one.on("127.0.0.1", 0, ReusePort::yes));
  EXPECT_TRUE(other.on("127.0.0.1", one.port(), ReusePort::yes));
  EXPECT_FALSE(third.on("127.0.0.1", one.port()));
}

}  // namespace
}  // namespace penstock::async
