// A small HTTP/1.1 client: keep-alive, whole or streamed answers. For health polls, tests and benchmarks. One request
// at a time on a connection; a Client holds one connection. One executor.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/async/tls.hpp"
#include "common/base/result.hpp"
#include "common/http/message.hpp"
#include "common/http/sse.hpp"
#include "common/time/clock.hpp"

namespace penstock::http {

namespace asio = boost::asio;

struct ClientOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 80;
  async::TlsContextPtr tls;  // null: plain
  Duration connect_timeout = std::chrono::seconds(5);
  std::size_t response_bytes_max = 64 << 20;  // of a whole answer
};

/// Not an aggregate: gcc 12 destroys an aggregate temporary twice when it is made within a co_await expression.
struct ClientRequest {
  explicit ClientRequest(std::string method_ = "GET", std::string target_ = "/", Headers headers_ = {},
                         std::string body_ = {})
      : method(std::move(method_)), target(std::move(target_)), headers(std::move(headers_)), body(std::move(body_)) {}

  std::string method;
  std::string target;  // path and query
  Headers headers;     // host and content-length are added
  std::string body;
};

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// A whole answer within `timeout`. Connects if need be; a kept connection that turns out dead before any byte of the
  /// answer is replaced once.
  asio::awaitable<Result<Response>> request(ClientRequest request, Duration timeout);

  /// Sends and reads the header of the answer; the body comes by read(). Until the body has been read to its end no
  /// other request may be made.
  asio::awaitable<Result<Response>> start(ClientRequest request, Duration timeout);
  /// More of the body; an empty string is its proper end. data_loss: the connection ended before that.
  asio::awaitable<Result<std::string>> read(Duration timeout);
  /// The next event of a text/event-stream; nothing at the proper end.
  asio::awaitable<Result<std::optional<SseEvent>>> next_event(Duration timeout);

  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::http
