// How the API server says no: an HTTP code and a Status object. Also made by the client itself (code 0) when there was
// no answer. Plain value; pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/json.hpp"
#include "common/time/clock.hpp"

namespace penstock::kube {

/// What to do about a failure; derived from code, reason and causes.
enum class Failure : std::uint8_t {
  no_answer,          // the connection broke or the time was over: it may or may not have happened
  bad_request,        // 400, 415, ...: this program's mistake
  unauthorized,       // 401
  forbidden,          // 403: RBAC, a quota or an admission rule
  not_found,          // 404
  already_exists,     // 409 of a create
  conflict,           // 409: another writer was faster, or a precondition did not hold
  gone,               // 410: the resource version or the continue token is too old
  too_new,            // 504 whose cause is a resource version that this server has not seen
  invalid,            // 422: a schema, a CEL rule or a JSON patch test said no
  too_many_requests,  // 429
  server,             // any other 5xx
};
std::string_view to_string(Failure failure);

struct Cause {
  std::string reason;
  std::string field;
  std::string message;
  friend bool operator==(const Cause&, const Cause&) = default;
};

struct ApiStatus {
  int code = 0;        // HTTP; 0: no answer
  std::string reason;  // "AlreadyExists"; may be empty
  std::string message;
  std::vector<Cause> causes;            // at most 32 are kept
  std::optional<Duration> retry_after;  // of the header or of details.retryAfterSeconds; at most 10 minutes

  Failure failure() const;
  bool is(Failure kind) const { return failure() == kind; }
  friend bool operator==(const ApiStatus&, const ApiStatus&) = default;
};

/// "409 AlreadyExists: pods "a" already exists", for logs and conditions; at most 512 bytes.
std::string to_string(const ApiStatus& status);
/// A 403 of a ResourceQuota.
bool is_quota(const ApiStatus& status);
/// For callers that speak Error.
Error to_error(const ApiStatus& status);
ApiStatus no_answer(const Error& error);

/// Of the object in an ERROR event, or of the body of an answer.
ApiStatus parse_status(const json::Object& status);
/// Of a whole answer. The body may be anything (a proxy's page): then its beginning is the message.
ApiStatus parse_status(int http_code, std::string_view body, std::optional<std::string_view> retry_after = {});

template <class T>
using ApiResult = boost::system::result<T, ApiStatus>;
[[noreturn]] void throw_exception_from_error(const ApiStatus& status, const boost::source_location& where);

}  // namespace penstock::kube
