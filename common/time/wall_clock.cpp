#include "common/time/wall_clock.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace penstock {
namespace {

std::tm to_utc(WallTime time) {
  const std::time_t seconds = static_cast<std::time_t>(time.unix_s);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

}  // namespace

WallTime wall_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  return {milliseconds / 1000, static_cast<std::int32_t>(milliseconds % 1000)};
}

std::string format_iso8601(WallTime time) {
  const std::tm parts = to_utc(time);
  std::array<char, 40> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + size, text.size() - size, ".%03dZ", time.milliseconds);
  return text.data();
}

std::string format_http_date(WallTime time) {
  // Names are spelled here, since strftime would follow the locale.
  constexpr std::array days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array months{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::tm parts = to_utc(time);
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                days[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                months[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                parts.tm_sec);
  return text.data();
}

}  // namespace penstock
