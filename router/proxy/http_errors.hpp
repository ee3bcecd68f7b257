// The core's ApiError as an HTTP answer.
#pragma once

#include "common/http/message.hpp"
#include "router/core/api/api_error.hpp"

namespace penstock::router {

http::Response to_response(const ApiError& error);

}  // namespace penstock::router
