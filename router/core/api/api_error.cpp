#include "router/core/api/api_error.hpp"

#include <stdexcept>

#include "common/json/openai_error.hpp"

namespace penstock::router {
namespace {

constexpr std::size_t message_bytes_max = 512;

std::string shortened(std::string text) {
  if (text.size() > message_bytes_max) {
    text.resize(message_bytes_max);
    text += "...";
  }
  return text;
}

ApiError retriable(int status, std::string code, std::string message, Duration retry_after) {
  ApiError error;
  error.status = status;
  error.type = status == 429 ? "rate_limit_error" : "server_error";
  error.code = std::move(code);
  error.message = std::move(message);
  error.retry = RetryHint::after;
  error.retry_after = retry_after > Duration{} ? retry_after : std::chrono::seconds(1);
  return error;
}

}  // namespace

void throw_exception_from_error(const ApiError& error, const boost::source_location&) {
  throw std::runtime_error(error.message);
}

ApiError invalid_field(std::string param, std::string message) {
  ApiError error;
  error.code = "invalid_value";
  error.message = shortened(std::move(message));
  error.param = shortened(std::move(param));
  return error;
}

ApiError unsupported_field(std::string param, std::string message) {
  ApiError error = invalid_field(std::move(param), std::move(message));
  error.code = "unsupported";
  return error;
}

ApiError unknown_model(std::string_view model) {
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.message = "The model `" + shortened(std::string(model.substr(0, 128))) + "` does not exist here.";
  error.param = "model";
  return error;
}

ApiError context_length_exceeded(std::uint64_t prompt_tokens, std::uint64_t output_tokens,
                                 std::uint64_t context_tokens) {
  ApiError error;
  error.code = "context_length_exceeded";
  error.param = "messages";
  error.message = "This model takes at most " + std::to_string(context_tokens) + " tokens, but the prompt has " +
                  std::to_string(prompt_tokens) + " and " + std::to_string(output_tokens) + " more are asked for.";
  return error;
}

ApiError server_overloaded(std::string message, Duration retry_after) {
  return retriable(503, "server_overloaded", std::move(message), retry_after);
}

ApiError no_capacity(std::string message, Duration retry_after) {
  return retriable(503, "no_capacity", std::move(message), retry_after);
}

ApiError queue_timeout(Duration retry_after) {
  return retriable(503, "queue_timeout", "The request waited too long for a worker.", retry_after);
}

ApiError deadline_exceeded() {
  ApiError error;
  error.status = 504;
  error.type = "server_error";
  error.code = "deadline_exceeded";
  error.message = "The deadline of the request passed.";
  return error;
}

ApiError worker_lost() {
  return retriable(503, "worker_lost", "The worker that served this request was lost.", std::chrono::seconds(1));
}

ApiError engine_error(std::string message) {
  ApiError error;
  error.status = 500;
  error.type = "server_error";
  error.code = "engine_error";
  error.message = shortened(std::move(message));
  error.retry = RetryHint::allowed;
  return error;
}

ApiError from_error(const Error& error, Duration retry_after) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported: {
      ApiError api;
      api.code = error.code == ErrorCode::unsupported ? "unsupported" : "invalid_value";
      api.message = shortened(error.message);
      return api;
    }
    case ErrorCode::not_found: {
      ApiError api;
      api.status = 404;
      api.code = "not_found";
      api.message = shortened(error.message);
      return api;
    }
    case ErrorCode::resource_exhausted:
      return server_overloaded(shortened(error.message), retry_after);
    case ErrorCode::unavailable:
    case ErrorCode::aborted:
      return no_capacity(shortened(error.message), retry_after);
    case ErrorCode::deadline_exceeded:
      return deadline_exceeded();
    case ErrorCode::unauthenticated:
    case ErrorCode::permission_denied:
    case ErrorCode::data_loss:
    case ErrorCode::internal:
      return engine_error(error.message);
  }
  return engine_error(error.message);
}

std::string to_json(const ApiError& error) {
  json::OpenAiError text{error.message, error.type, error.param, std::nullopt};
  if (!error.code.empty()) text.code = error.code;
  return json::to_text(text);
}

}  // namespace penstock::router
