// Calendar time, for people and for protocols that want a date: log lines, HTTP Date, certificates. Never for durations
// or deadlines. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

struct WallTime {
  std::int64_t unix_s = 0;
  std::int32_t milliseconds = 0;
};
WallTime wall_now();

std::string format_iso8601(WallTime time);    // "2026-01-31T23:59:59.123Z"
std::string format_http_date(WallTime time);  // "Sat, 31 Jan 2026 23:59:59 GMT"

}  // namespace penstock
