#include "common/kube/model/status.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {
namespace {

constexpr std::size_t causes_max = 32;
constexpr std::size_t text_bytes_max = 512;
constexpr std::int64_t retry_after_s_max = 600;

/// The beginning of a text, cut at a character.
std::string beginning(std::string_view text) {
  std::size_t size = std::min(text.size(), text_bytes_max);
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return std::string(text.substr(0, size));
}

std::optional<Duration> bounded_seconds(std::int64_t seconds) {
  if (seconds < 0) return std::nullopt;
  return std::chrono::seconds(std::min(seconds, retry_after_s_max));
}

std::optional<Duration> parse_retry_after(std::string_view text) {
  std::int64_t seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;  // a date: nobody sends one
  return bounded_seconds(seconds);
}

bool is_too_new(const ApiStatus& status) {
  constexpr std::string_view marker = "ResourceVersionTooLarge", words = "Too large resource version";
  const bool by_cause = std::any_of(status.causes.begin(), status.causes.end(),
                                    [&](const Cause& cause) { return cause.reason == marker; });
  return by_cause || status.message.find(words) != std::string::npos;
}

}  // namespace

std::string_view to_string(Failure failure) {
  switch (failure) {
    case Failure::no_answer:
      return "no_answer";
    case Failure::bad_request:
      return "bad_request";
    case Failure::unauthorized:
      return "unauthorized";
    case Failure::forbidden:
      return "forbidden";
    case Failure::not_found:
      return "not_found";
    case Failure::already_exists:
      return "already_exists";
    case Failure::conflict:
      return "conflict";
    case Failure::gone:
      return "gone";
    case Failure::too_new:
      return "too_new";
    case Failure::invalid:
      return "invalid";
    case Failure::too_many_requests:
      return "too_many_requests";
    case Failure::server:
      return "server";
  }
  return "?";
}

Failure ApiStatus::failure() const {
  if (code == 0) return Failure::no_answer;
  if (code == 401) return Failure::unauthorized;
  if (code == 403) return Failure::forbidden;
  if (code == 404) return Failure::not_found;
  if (code == 409) return reason == "AlreadyExists" ? Failure::already_exists : Failure::conflict;
  if (code == 410) return Failure::gone;
  if (code == 422) return Failure::invalid;
  if (code == 429) return Failure::too_many_requests;
  if (code >= 500) return is_too_new(*this) ? Failure::too_new : Failure::server;
  return Failure::bad_request;
}

std::string to_string(const ApiStatus& status) {
  std::string text = status.code == 0 ? "no answer" : std::to_string(status.code);
  if (!status.reason.empty()) text += " " + status.reason;
  if (!status.message.empty()) text += ": " + status.message;
  return beginning(text);
}

bool is_quota(const ApiStatus& status) {
  return status.is(Failure::forbidden) && status.message.find("exceeded quota") != std::string::npos;
}

Error to_error(const ApiStatus& status) {
  ErrorCode code = ErrorCode::internal;
  switch (status.failure()) {
    case Failure::no_answer:
    case Failure::server:
      code = ErrorCode::unavailable;
      break;
    case Failure::bad_request:
    case Failure::invalid:
      code = ErrorCode::invalid_argument;
      break;
    case Failure::unauthorized:
      code = ErrorCode::unauthenticated;
      break;
    case Failure::forbidden:
      code = ErrorCode::permission_denied;
      break;
    case Failure::not_found:
      code = ErrorCode::not_found;
      break;
    case Failure::already_exists:
    case Failure::conflict:
    case Failure::gone:
    case Failure::too_new:
      code = ErrorCode::aborted;
      break;
    case Failure::too_many_requests:
      code = ErrorCode::resource_exhausted;
      break;
  }
  return make_error(code, to_string(status));
}

ApiStatus no_answer(const Error& error) {
  ApiStatus status;
  status.reason = std::string(penstock::to_string(error.code));
  status.message = error.message;
  return status;
}

ApiStatus parse_status(const json::Object& object) {
  ApiStatus status;
  // An ERROR event without a code still means that something went wrong on the server's side.
  status.code = static_cast<int>(std::clamp<std::int64_t>(integer_at(object, {"code"}).value_or(500), 1, 999));
  status.reason = beginning(text_at(object, {"reason"}).value_or(std::string_view()));
  status.message = beginning(text_at(object, {"message"}).value_or(std::string_view()));
  if (const auto seconds = integer_at(object, {"details", "retryAfterSeconds"}); seconds && *seconds > 0) {
    status.retry_after = bounded_seconds(*seconds);
  }
  const json::Array* causes = array_at(object, {"details", "causes"});
  if (causes == nullptr) return status;
  for (const json::Value& entry : *causes) {
    const json::Object* cause = entry.if_object();
    if (cause == nullptr || status.causes.size() == causes_max) continue;
    status.causes.push_back({beginning(text_at(*cause, {"reason"}).value_or(std::string_view())),
                             beginning(text_at(*cause, {"field"}).value_or(std::string_view())),
                             beginning(text_at(*cause, {"message"}).value_or(std::string_view()))});
  }
  return status;
}

ApiStatus parse_status(int http_code, std::string_view body, std::optional<std::string_view> retry_after) {
  ApiStatus status;
  const auto parsed = json::parse(body);
  const json::Object* object = parsed ? parsed->if_object() : nullptr;
  if (object != nullptr && text_at(*object, {"kind"}) == "Status") {
    status = parse_status(*object);
  } else {
    status.message = beginning(body);
  }
  status.code = http_code;
  if (retry_after) {
    if (const auto wait = parse_retry_after(*retry_after)) status.retry_after = wait;
  }
  return status;
}

void throw_exception_from_error(const ApiStatus& status, const boost::source_location&) {
  throw std::runtime_error(to_string(status));
}

}  // namespace penstock::kube
