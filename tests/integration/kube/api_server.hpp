// A scripted API server over TLS on loopback, in the io_context of the test: each path has a queue of answers, or a
// function that makes them; every request is kept. One thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/http/server.hpp"
#include "common/kube/client/client.hpp"

namespace penstock::kube {

/// What a request is answered with.
struct Answer {
  enum class End : std::uint8_t {
    close,  // properly
    cut,    // in the middle
    hold,   // not at all, until the client goes
  };
  Answer() = default;
  Answer(int status_, std::string body) : status(status_), chunks{std::move(body)} {}

  int status = 200;
  std::vector<std::string> chunks;  // each in a segment of its own
  End end = End::close;
  std::string retry_after;
  Duration pause{0};  // before each chunk
};
Answer stream(std::vector<std::string> chunks, Answer::End end = Answer::End::hold);

/// Two folders' worth of keys: the server's certificate, and one for a client.
class TestKeys {
 public:
  TestKeys();
  ~TestKeys();
  TestKeys(const TestKeys&) = delete;
  TestKeys& operator=(const TestKeys&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path folder_;
};

class ApiServer {
 public:
  /// With `client_ca` clients must have a certificate of it.
  ApiServer(boost::asio::io_context& io, const TestKeys& keys, const std::string& client_ca = "");
  ~ApiServer();

  void enqueue(const std::string& path, Answer answer) { queues_[path].push_back(std::move(answer)); }
  /// For paths without a queue; nothing: 404.
  std::function<std::optional<Answer>(const http::Request&)> responder;
  std::vector<http::Request> seen;
  /// Requests of one path, in order.
  std::vector<http::Request> seen_at(const std::string& path) const;

  ClusterConfig config(const TestKeys& keys) const;

 private:
  boost::asio::awaitable<void> serve(http::Request request, http::ResponseWriter& writer);
  Answer answer_for(const http::Request& request);

  std::map<std::string, std::deque<Answer>> queues_;
  std::unique_ptr<http::Server> server_;
  std::uint16_t port_ = 0;
};

/// Runs a coroutine to its end in the io_context; at most ten seconds.
void run(boost::asio::io_context& io, boost::asio::awaitable<void> task);
/// Lets the io_context run until the condition holds; false after `limit`.
bool run_until(boost::asio::io_context& io, const std::function<bool()>& condition,
               Duration limit = std::chrono::seconds(10));

/// Short waits, for tests.
ClientOptions quick_client();

}  // namespace penstock::kube
