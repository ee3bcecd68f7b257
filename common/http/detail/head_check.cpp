#include "common/http/detail/head_check.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace penstock::http::detail {
namespace {

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> token{};
  for (unsigned c = '0'; c <= '9'; ++c) token[c] = true;
  for (unsigned c = 'a'; c <= 'z'; ++c) token[c] = true;
  for (unsigned c = 'A'; c <= 'Z'; ++c) token[c] = true;
  for (char c : std::string_view("!#$%&'*+-.^_`|~")) token[static_cast<unsigned char>(c)] = true;
  return token;
}
constexpr std::array<bool, 256> token_table = make_token_table();

bool is_token(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return token_table[static_cast<unsigned char>(c)]; });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// host[:port], host being a name, an IPv4 address or an IPv6 address in brackets.
bool is_host(std::string_view text) {
  if (text.empty() || text.size() > 300) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_' || c == ':' || c == '[' || c == ']';
  });
}

/// Fields that may come once only, gathered over the head.
struct Seen {
  std::optional<std::string_view> host, content_length, transfer_encoding, expect;
};

std::optional<ApiError> take_once(std::optional<std::string_view>& place, std::string_view value, const char* name) {
  if (place) return protocol_error(400, "more than one " + std::string(name) + " header");
  place = value;
  return std::nullopt;
}

std::optional<ApiError> check_request_line(std::string_view line, const ServerLimits& limits, HeadFacts& facts,
                                           std::string_view& authority) {
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return protocol_error(400, "malformed request line");
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method)) return protocol_error(400, "malformed method");
  if (target.size() > limits.request_line_bytes_max) return protocol_error(414, "the request target is too long");
  if (version.size() != 8 || !version.starts_with("HTTP/") || version[6] != '.') {
    return protocol_error(400, "malformed HTTP version");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return protocol_error(505, "only HTTP/1.1 is spoken here");
  facts.http_1_0 = version == "HTTP/1.0";
  if (method == "CONNECT" || method == "TRACE") {
    ApiError error = protocol_error(405, "the method is not allowed");
    return error;
  }
  constexpr std::array known{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
  if (std::find(known.begin(), known.end(), method) == known.end()) return protocol_error(501, "unknown method");
  if (target == "*" && method == "OPTIONS") return std::nullopt;
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.starts_with(scheme)) {
      target.remove_prefix(scheme.size());
      authority = target.substr(0, target.find('/'));
      target.remove_prefix(authority.size());
    }
  }
  const bool visible = std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!target.starts_with('/') || !visible || target.find('#') != std::string_view::npos) {
    return protocol_error(400, "malformed request target");
  }
  return std::nullopt;
}

std::optional<ApiError> check_field(std::string_view line, Seen& seen) {
  if (line.front() == ' ' || line.front() == '\t') return protocol_error(400, "folded header line");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return protocol_error(400, "header line without a colon");
  const std::string_view name = line.substr(0, colon), value = trim(line.substr(colon + 1));
  if (!is_token(name)) return protocol_error(400, "malformed header name");
  if (equal_names(name, "content-length")) return take_once(seen.content_length, value, "Content-Length");
  if (equal_names(name, "content_length") || equal_names(name, "transfer_encoding")) {
    return protocol_error(400, "malformed header name");
  }
  if (equal_names(name, "transfer-encoding")) return take_once(seen.transfer_encoding, value, "Transfer-Encoding");
  if (equal_names(name, "host")) return take_once(seen.host, value, "Host");
  if (equal_names(name, "expect")) return take_once(seen.expect, value, "Expect");
  if (equal_names(name, "content-encoding") && !equal_names(value, "identity")) {
    return protocol_error(415, "encoded bodies are not supported");
  }
  return std::nullopt;
}

std::optional<ApiError> check_framing(std::string_view method, const Seen& seen, const ServerLimits& limits,
                                      HeadFacts& facts) {
  if (seen.transfer_encoding) {
    if (facts.http_1_0) return protocol_error(400, "Transfer-Encoding in HTTP/1.0");
    if (seen.content_length) return protocol_error(400, "both Content-Length and Transfer-Encoding");
    if (!equal_names(*seen.transfer_encoding, "chunked")) return protocol_error(501, "unknown transfer coding");
    facts.chunked = true;
  }
  if (seen.content_length) {
    const std::string_view text = *seen.content_length;
    std::uint64_t length = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const bool digits =
        !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || (text.size() > 1 && text.front() == '0')) return protocol_error(400, "malformed Content-Length");
    if (error != std::errc{} || end != text.data() + text.size() || length > limits.body_bytes_max) {
      return protocol_error(413, "the body is larger than " + std::to_string(limits.body_bytes_max) + " bytes");
    }
    facts.content_length = static_cast<std::size_t>(length);
  }
  const bool needs_length = method == "POST" || method == "PUT" || method == "PATCH";
  if (needs_length && !seen.content_length && !facts.chunked) {
    return protocol_error(411, "a " + std::string(method) + " needs Content-Length or chunked coding");
  }
  if (seen.expect) {
    if (!equal_names(*seen.expect, "100-continue")) return protocol_error(417, "unknown expectation");
    facts.expects_continue = !facts.http_1_0;
  }
  return std::nullopt;
}

}  // namespace

ApiError protocol_error(int status, std::string message) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  switch (status) {
    case 408:
      error.code = "request_timeout";
      break;
    case 413:
      error.code = "request_too_large";
      break;
    case 414:
      error.code = "uri_too_long";
      break;
    case 431:
      error.code = "headers_too_large";
      break;
    default:
      error.code = "bad_request";
  }
  return error;
}

std::optional<ApiError> HeadScanner::check(char byte, char previous) {
  if (byte == '\n' && previous != '\r') return protocol_error(400, "a line ends with a bare LF");
  if (byte != '\n' && previous == '\r') return protocol_error(400, "a bare CR");
  const auto value = static_cast<unsigned char>(byte);
  if ((value < 0x20 && byte != '\t' && byte != '\r' && byte != '\n') || value == 0x7F) {
    return protocol_error(400, "a control character in the header");
  }
  if (line_count_ == 0 && position_ >= limits_.request_line_bytes_max) {
    return protocol_error(
        414, "the request line is longer than " + std::to_string(limits_.request_line_bytes_max) + " bytes");
  }
  if (position_ >= limits_.request_line_bytes_max + limits_.header_bytes_max) {
    return protocol_error(431, "the headers are larger than " + std::to_string(limits_.header_bytes_max) + " bytes");
  }
  return std::nullopt;
}

std::optional<ApiError> HeadScanner::end_line() {
  line_start_ = position_ + 1;
  if (++line_count_ > limits_.header_count_max + 1) {
    return protocol_error(431, "more than " + std::to_string(limits_.header_count_max) + " headers");
  }
  return std::nullopt;
}

std::size_t HeadScanner::scan(std::string_view input) {
  for (; position_ < input.size(); ++position_) {
    const char previous = position_ > 0 ? input[position_ - 1] : '\0';
    error_ = check(input[position_], previous);
    if (error_) return 0;
    if (input[position_] != '\n') continue;
    if (position_ == line_start_ + 1) {
      if (line_count_ > 0) return position_ + 1;
      error_ = protocol_error(400, "an empty line before the request");
      return 0;
    }
    error_ = end_line();
    if (error_) return 0;
  }
  return 0;
}

std::optional<ApiError> check_head(std::string_view head, const ServerLimits& limits, HeadFacts& facts) {
  std::string_view rest = head.substr(0, head.size() - 2);
  Seen seen;
  std::string_view authority, method;
  bool at_request_line = true;
  while (!rest.empty()) {
    const std::size_t end = rest.find("\r\n");
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    if (at_request_line) {
      method = line.substr(0, line.find(' '));
      if (auto error = check_request_line(line, limits, facts, authority)) return error;
      at_request_line = false;
    } else if (auto error = check_field(line, seen)) {
      return error;
    }
  }
  if (!seen.host && !facts.http_1_0) return protocol_error(400, "no Host header");
  if (seen.host && !is_host(*seen.host)) return protocol_error(400, "malformed Host header");
  if (!authority.empty() && seen.host && !equal_names(authority, *seen.host)) {
    return protocol_error(400, "the request target names another host");
  }
  return check_framing(method, seen, limits, facts);
}

}  // namespace penstock::http::detail
