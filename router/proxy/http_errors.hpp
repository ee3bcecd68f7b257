// The core's ApiError as an HTTP answer.
#pragma once

#include "common/http/message.hpp"
#include "router/core/admission/queue.hpp"
#include "router/core/api/api_error.hpp"

namespace penstock::router {

/// What a tenant's limits refuse: 429.
ApiError rate_limit_exceeded(const Refused& refused);
http::Response to_response(const ApiError& error);

}  // namespace penstock::router
