// A server on loopback in a thread of its own, and a raw socket to be rude to it with.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <string>
#include <string_view>
#include <thread>

#include "common/http/server.hpp"
#include "common/time/block.hpp"

namespace penstock::http {

/// Owns the io_context, its thread and one server.
class ServerFixture {
 public:
  explicit ServerFixture(Handler handler, ServerOptions options = {})
      : probe(make_server_probe(registry, "test")),
        server(
            std::make_unique<Server>(io.get_executor(), std::move(options), std::move(handler), log::Logger(), probe)),
        work_(boost::asio::make_work_guard(io)) {
    port = server->listen("127.0.0.1", 0).value();
    thread_ = std::thread([this] { io.run(); });
  }
  ~ServerFixture() {
    on_server([this] { server->stop(); });
    work_.reset();
    // Sessions end by themselves after stop(); the run is bounded all the same.
    boost::asio::post(io, [this] { server.reset(); });
    thread_.join();
  }

  /// Runs a function on the server's thread and waits for it.
  template <class Function>
  void on_server(Function function) {
    std::promise<void> done;
    boost::asio::post(io, [&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }

  /// Waits, at most 5 s, until the condition holds on the server's thread.
  template <class Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 1000; ++i) {
      bool holds = false;
      on_server([&] { holds = condition(); });
      if (holds) return true;
      block_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  metrics::Registry registry;
  ServerProbe probe;
  boost::asio::io_context io;
  std::unique_ptr<Server> server;
  std::uint16_t port = 0;

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

/// A blocking socket with a time-out of 5 s on reads.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout{5, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (receive_buffer_bytes > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// What one read gives; "" at the end, on a reset and on a time-out.
  std::string read_once() {
    std::string text(256 << 10, '\0');
    const ssize_t count = ::recv(socket_, text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  std::string read_until(std::string_view mark) {
    std::string text;
    while (text.find(mark) == std::string::npos) {
      const std::string more = read_once();
      if (more.empty()) break;
      text += more;
    }
    return text;
  }
  std::string read_all() {
    std::string text;
    for (std::string more = read_once(); !more.empty(); more = read_once()) text += more;
    return text;
  }
  void shutdown_send() { ::shutdown(socket_, SHUT_WR); }
  void reset() {
    const linger now{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  std::uint16_t local_port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

  bool connected = false;

 private:
  int socket_;
};

inline std::string get(std::string_view path = "/", std::string_view fields = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(fields) + "\r\n";
}

}  // namespace penstock::http
