// What goes wrong, as a value. Kind 1 of the style guide: depends on input, load or peers.
// An Error has a code that callers may switch on and a message for people; nothing secret goes into it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

enum class ErrorCode : std::uint8_t {
  invalid_argument,    // the caller's mistake; retrying does not help
  not_found,           // an unknown model, request, transfer or file
  resource_exhausted,  // full for now; retry later
  unavailable,         // the peer or service is away; retry elsewhere
  deadline_exceeded,   // the time given is over
  aborted,             // cancelled by the caller or superseded by a newer attempt
  unauthenticated,     // no valid credential
  permission_denied,   // a valid credential that does not allow this
  data_loss,           // corrupt or truncated bytes
  unsupported,         // a named thing that this build or model cannot do
  internal,            // our own fault
};

std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

}  // namespace penstock
