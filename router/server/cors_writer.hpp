// Adds what a browser needs to let a page of another origin read the answer. Lives in the handler's coroutine.
#pragma once

#include <string>
#include <utility>

#include "common/http/server.hpp"

namespace penstock::router {

class CorsWriter final : public http::ResponseWriter {
 public:
  CorsWriter(http::ResponseWriter& inner, std::string origin) : inner_(inner), origin_(std::move(origin)) {}

  boost::asio::awaitable<Result<void>> send(http::Response response) override {
    add(response.headers);
    return inner_.send(std::move(response));
  }
  void begin_stream(int status, http::Headers headers) override {
    add(headers);
    inner_.begin_stream(status, std::move(headers));
  }
  boost::asio::awaitable<Result<void>> write(std::string_view chunk) override { return inner_.write(chunk); }
  boost::asio::awaitable<Result<void>> end(std::string_view last_chunk) override { return inner_.end(last_chunk); }
  void fail() override { inner_.fail(); }
  bool started() const override { return inner_.started(); }
  bool is_client_connected() const override { return inner_.is_client_connected(); }
  void on_disconnect(std::function<void()> callback) override { inner_.on_disconnect(std::move(callback)); }

 private:
  void add(http::Headers& headers) const {
    headers.set("access-control-allow-origin", origin_);
    headers.set("access-control-expose-headers", "x-request-id, retry-after, x-penstock-route");
    if (origin_ != "*") headers.set("vary", "origin");
  }

  http::ResponseWriter& inner_;
  std::string origin_;
};

}  // namespace penstock::router
