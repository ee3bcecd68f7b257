#include "common/base/error.hpp"

#include <stdexcept>

#include "common/base/result.hpp"

namespace penstock {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::resource_exhausted: return "resource_exhausted";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::deadline_exceeded: return "deadline_exceeded";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::unauthenticated: return "unauthenticated";
    case ErrorCode::permission_denied: return "permission_denied";
    case ErrorCode::data_loss: return "data_loss";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

void throw_exception_from_error(const Error& error, const boost::source_location&) {
  throw std::runtime_error(std::string(to_string(error.code)) + ": " + error.message);
}

}  // namespace penstock
