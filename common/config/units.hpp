// Values with units, as people write them in options: "10s", "500ms", "1GiB". Pure; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::config {

/// A number of bytes with its own text form.
struct ByteSize {
  std::uint64_t bytes = 0;
  friend auto operator<=>(const ByteSize&, const ByteSize&) = default;
};
constexpr ByteSize operator""_KiB(unsigned long long count) {
  return {count << 10};
}
constexpr ByteSize operator""_MiB(unsigned long long count) {
  return {count << 20};
}
constexpr ByteSize operator""_GiB(unsigned long long count) {
  return {count << 30};
}

/// A number (fractions allowed) and one of ns, us, ms, s, m, h, d. Only 0 may go without a unit. Not negative.
Result<Duration> parse_duration(std::string_view text);
std::string format_duration(Duration duration);  // the largest unit that divides it

/// A number (fractions allowed) and one of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB; without a unit it is bytes.
Result<ByteSize> parse_byte_size(std::string_view text);
std::string format_byte_size(ByteSize size);

}  // namespace penstock::config
