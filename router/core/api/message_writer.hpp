// Calls and thoughts in the shapes of OpenAI's chat API: `tool_calls`, and `reasoning_content`, which is no part of
// OpenAI's API but what clients of open models read. Pure; any thread.
#pragma once

#include <string>

#include "router/core/output/events.hpp"

namespace penstock::router {

/// Members of a chunk's delta, without braces. The name is in the first chunk of a call only, with its id and type.
void append_event_delta(const OutputEvent& event, std::string& out);

/// Members of a whole message: content (null if there is none), reasoning_content and tool_calls if there are any.
void append_message(const OutputEvents& events, std::string& out);

}  // namespace penstock::router
