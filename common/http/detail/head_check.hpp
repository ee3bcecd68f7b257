// A strict look at the raw head of a request (request line and fields) before the parser sees it. Parsers forgive what
// others read differently; here every such shape is refused, so that no two readers can disagree on where a request
// ends. Pure; any thread; bytes are hostile. Rules: RFC 9110, RFC 9112, and docs of common request smuggling.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "common/http/limits.hpp"
#include "common/http/message.hpp"

namespace penstock::http::detail {

/// Looks for the end of the head, each byte once. Limits and bytes that may not occur are seen as soon as they come.
class HeadScanner {
 public:
  explicit HeadScanner(const ServerLimits& limits) : limits_(limits) {}

  /// `input` is all of the head so far. The size of the head with its empty line, 0 while it is incomplete.
  std::size_t scan(std::string_view input);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  std::optional<ApiError> check(char byte, char previous);
  std::optional<ApiError> end_line();

  const ServerLimits& limits_;
  std::size_t position_ = 0;
  std::size_t line_start_ = 0;
  std::size_t line_count_ = 0;
  std::optional<ApiError> error_;
};

/// What the head says about the message's framing; all else is the parser's.
struct HeadFacts {
  bool expects_continue = false;
  bool http_1_0 = false;
  std::optional<std::size_t> content_length;
  bool chunked = false;
};

/// Checks a complete head.
std::optional<ApiError> check_head(std::string_view head, const ServerLimits& limits, HeadFacts& facts);

ApiError protocol_error(int status, std::string message);

}  // namespace penstock::http::detail
