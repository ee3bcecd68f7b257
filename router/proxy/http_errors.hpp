// The core's ApiError as an HTTP answer.
#pragma once

#include <string_view>

#include "common/http/message.hpp"
#include "router/core/admission/queue.hpp"
#include "router/core/api/api_error.hpp"

namespace penstock::router {

/// What a tenant's limits refuse: 429.
ApiError rate_limit_exceeded(const Refused& refused);
http::Response to_response(const ApiError& error);
/// In the shape of the API that the path belongs to.
http::Response to_response(const ApiError& error, std::string_view path);

}  // namespace penstock::router
