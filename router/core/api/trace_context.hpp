// W3C trace context: which trace a request belongs to, and the span that it is here. Pure; the random numbers come from
// the caller.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::router {

/// The traceparent of a span below `parent`; "" if `parent` is not a valid traceparent, which then counts as absent.
std::string child_trace(std::string_view parent, std::uint64_t span);
/// The traceparent of the first span of a new, sampled trace.
std::string new_trace(std::uint64_t trace_high, std::uint64_t trace_low, std::uint64_t span);

}  // namespace penstock::router
