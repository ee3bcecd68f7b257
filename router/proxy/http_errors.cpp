#include "router/proxy/http_errors.hpp"

#include <algorithm>

#include "router/core/api/anthropic_encoder.hpp"

namespace penstock::router {

ApiError rate_limit_exceeded(const Refused& refused) {
  ApiError error = server_overloaded(refused.error.message, refused.retry_after);
  error.status = 429;
  error.type = "rate_limit_error";
  error.code = "rate_limit_exceeded";
  return error;
}

http::Response to_response(const ApiError& error, std::string_view path) {
  http::Response response = to_response(error);
  const bool is_anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
  if (is_anthropic) response.body = to_anthropic_json(error);
  return response;
}

http::Response to_response(const ApiError& error) {
  http::Response response = http::json_response(error.status, to_json(error));
  switch (error.retry) {
    case RetryHint::never:
      response.headers.set("x-should-retry", "false");
      break;
    case RetryHint::allowed:
      break;
    case RetryHint::after: {
      const auto seconds = std::chrono::ceil<std::chrono::seconds>(error.retry_after).count();
      response.headers.set("retry-after", std::to_string(std::clamp<std::int64_t>(seconds, 1, 120)));
      break;
    }
  }
  return response;
}

}  // namespace penstock::router
