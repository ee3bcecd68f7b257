// Bytes to one Request, under limits. Wraps Beast's parser behind the strict look at the head. Pure (no sockets); bytes
// are hostile; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "common/http/limits.hpp"
#include "common/http/message.hpp"

namespace penstock::http::detail {

enum class Progress : std::uint8_t {
  need_more,  // of the head or the body
  head_done,  // told once; the body follows
  complete,
  failed,  // see error(); the connection can't go on
};

class RequestParser {
 public:
  explicit RequestParser(const ServerLimits& limits);
  ~RequestParser();

  /// Takes bytes from the front of `input` (all that are there and not yet consumed); `consumed` says how many.
  Progress feed(std::string_view input, std::size_t& consumed);

  bool head_done() const;
  bool expects_continue() const;
  bool keep_alive() const;
  bool http_1_0() const;
  std::size_t body_bytes() const;  // received so far
  const ApiError& error() const;
  /// After `complete`. Peer address and id are the caller's to fill in.
  Request take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::http::detail
