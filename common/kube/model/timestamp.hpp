// Calendar times in API objects. For people and for facts that outlive a process; never for deadlines. Pure; any
// thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::kube {

/// Microseconds since 1970, UTC.
struct Timestamp {
  std::int64_t unix_us = 0;

  static Timestamp from_seconds(std::int64_t unix_s) { return {unix_s * 1'000'000}; }
  std::int64_t unix_s() const { return unix_us / 1'000'000; }
  friend auto operator<=>(const Timestamp&, const Timestamp&) = default;
};

/// RFC 3339 with any fraction and any offset; years 1 to 9999.
std::optional<Timestamp> parse_timestamp(std::string_view text);
std::string format_time(Timestamp time);        // "2026-01-31T23:59:59Z", the API's Time
std::string format_micro_time(Timestamp time);  // "2026-01-31T23:59:59.000000Z", the API's MicroTime

}  // namespace penstock::kube
