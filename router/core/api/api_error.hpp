// What a client is told when something is wrong, in the shape of OpenAI's API, with its status and retry hint. The core
// cannot see common/http, so this is its own plain value; the server turns it into an answer.
// Pure; any thread. Nothing secret and no prompt text goes into it.
#pragma once

#include <boost/system/result.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/time/clock.hpp"

namespace penstock::router {

enum class RetryHint : std::uint8_t {
  never,    // x-should-retry: false
  allowed,  // nothing said
  after,    // Retry-After
};

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code;  // "" is null
  std::string message;
  std::optional<std::string> param;
  RetryHint retry = RetryHint::never;
  Duration retry_after{};

  friend bool operator==(const ApiError&, const ApiError&) = default;
};

template <class T>
using ApiResult = boost::system::result<T, ApiError>;
[[noreturn]] void throw_exception_from_error(const ApiError& error, const boost::source_location& where);

/// 400 with the field's path.
ApiError invalid_field(std::string param, std::string message);
/// 400 for what exists in OpenAI's API but not here, by name.
ApiError unsupported_field(std::string param, std::string message);
ApiError unknown_model(std::string_view model);
ApiError context_length_exceeded(std::uint64_t prompt_tokens, std::uint64_t output_tokens,
                                 std::uint64_t context_tokens);
ApiError server_overloaded(std::string message, Duration retry_after);
ApiError no_capacity(std::string message, Duration retry_after);
ApiError queue_timeout(Duration retry_after);
ApiError deadline_exceeded();
ApiError worker_lost();
ApiError engine_error(std::string message);
/// What a worker or the inside says, in the client's terms.
ApiError from_error(const Error& error, Duration retry_after);

/// {"error":{"message","type","param","code"}}
std::string to_json(const ApiError& error);

}  // namespace penstock::router
