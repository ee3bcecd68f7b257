// Requests of Anthropic's Messages API, said in the terms of chat completions: the checks, the template and all that
// follows are the same. Pure; any thread. Bounded by ApiLimits.
#pragma once

#include "common/json/json.hpp"
#include "router/core/api/validated_request.hpp"

namespace penstock::router {

/// The body of POST /v1/messages as one of POST /v1/chat/completions. Errors name the fields of the former.
ApiResult<json::Object> chat_body_of_messages(const json::Object& body, const ApiLimits& limits);

/// The same of POST /v1/messages/count_tokens, which needs no max_tokens.
ApiResult<json::Object> chat_body_of_count(const json::Object& body, const ApiLimits& limits);

}  // namespace penstock::router
