#include "common/text/ffi.hpp"

namespace penstock::text::detail {

namespace {
ErrorCode code_of(Status status) {
  switch (status) {
    case Status::invalid_argument:
      return ErrorCode::invalid_argument;
    case Status::unsupported:
      return ErrorCode::unsupported;
    case Status::resource_exhausted:
      return ErrorCode::resource_exhausted;
    case Status::ok:
    case Status::internal:
      break;
  }
  return ErrorCode::internal;
}
}  // namespace

Error Receiver::error(Status status) {
  return make_error(code_of(status), take_text());
}

}  // namespace penstock::text::detail
