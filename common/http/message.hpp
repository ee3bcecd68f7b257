// HTTP messages as plain values. No sockets, no Beast. Pure; any thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::http {

/// Header fields in order. Names compare without case. Few (at most 100), so lookups walk.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> fields);

  void add(std::string_view name, std::string_view value);
  void set(std::string_view name, std::string_view value);  // replaces all of that name
  std::optional<std::string_view> find(std::string_view name) const;
  std::size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

bool equal_names(std::string_view a, std::string_view b);

struct Request {
  std::string method;  // "GET", upper case as sent
  std::string path;    // without the query, percent-decoded once; starts with '/'
  std::string query;   // raw, without '?'
  Headers headers;     // request_id and framing headers included as sent
  std::string body;
  std::string peer_address;  // "ip:port"
  std::string id;            // x-request-id: the client's if usable, else made here
  bool encrypted = false;    // came over TLS
};

/// Not an aggregate: gcc 12 destroys an aggregate temporary twice when it is made within a co_await expression. Fill
/// the other structs of this file before the co_await, in a statement of their own.
struct Response {
  Response() = default;
  Response(int status_, Headers headers_, std::string body_)
      : status(status_), headers(std::move(headers_)), body(std::move(body_)) {}

  int status = 200;
  Headers headers;
  std::string body;  // content-length and date are added when sent
};

std::string_view reason_phrase(int status);

/// The value of a query parameter, percent-decoded ('+' is a space).
std::optional<std::string> query_parameter(std::string_view query, std::string_view name);
std::optional<std::string> percent_decode(std::string_view text);

Response json_response(int status, std::string body);
Response text_response(int status, std::string body);

/// What OpenAI's API says when something is wrong: {"error":{"message","type","param","code"}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::optional<std::string> param;
  std::optional<std::string> code;
  std::optional<int> retry_after_s;  // Retry-After
  bool should_retry = false;  // if not, x-should-retry: false is sent: official clients repeat 408, 409, 429, 5xx
};
std::string to_json(const ApiError& error);
Response to_response(const ApiError& error);

}  // namespace penstock::http
