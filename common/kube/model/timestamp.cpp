#include "common/kube/model/timestamp.hpp"

#include <chrono>
#include <cstdio>

namespace penstock::kube {
namespace {

struct Calendar {
  int year, month, day, hour, minute, second, microsecond;
};

Calendar split(Timestamp time) {
  using std::chrono::floor;
  const std::chrono::sys_time<std::chrono::microseconds> instant{std::chrono::microseconds(time.unix_us)};
  const auto day = floor<std::chrono::days>(instant);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss clock{instant - day};
  return {static_cast<int>(date.year()),
          static_cast<int>(static_cast<unsigned>(date.month())),
          static_cast<int>(static_cast<unsigned>(date.day())),
          static_cast<int>(clock.hours().count()),
          static_cast<int>(clock.minutes().count()),
          static_cast<int>(clock.seconds().count()),
          static_cast<int>(clock.subseconds().count())};
}

/// Reads exactly `count` digits and moves on; -1 if they aren't there.
int take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return -1;
  int number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    number = number * 10 + (text[i] - '0');
  }
  text.remove_prefix(count);
  return number;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

/// ".123456789": digits beyond microseconds are dropped. -1 if malformed.
std::int64_t take_fraction_us(std::string_view& text) {
  if (!take(text, ".")) return 0;
  std::int64_t fraction = 0, unit = 100'000;
  std::size_t count = 0;
  for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), ++count) {
    fraction += unit * (text[0] - '0');
    unit /= 10;
  }
  return count == 0 ? -1 : fraction;
}

/// "Z" or "+01:30", in seconds east of UTC.
std::optional<int> take_offset_s(std::string_view& text) {
  if (take(text, "Zz")) return 0;
  const bool west = !text.empty() && text[0] == '-';
  if (!take(text, "+-")) return std::nullopt;
  const int hours = take_digits(text, 2);
  if (hours < 0 || hours > 23 || !take(text, ":")) return std::nullopt;
  const int minutes = take_digits(text, 2);
  if (minutes < 0 || minutes > 59) return std::nullopt;
  const int seconds = hours * 3600 + minutes * 60;
  return west ? -seconds : seconds;
}

}  // namespace

std::optional<Timestamp> parse_timestamp(std::string_view text) {
  const int year = take_digits(text, 4);
  if (year < 1 || !take(text, "-")) return std::nullopt;
  const int month = take_digits(text, 2);
  if (month < 1 || !take(text, "-")) return std::nullopt;
  const int day = take_digits(text, 2);
  if (day < 1 || !take(text, "Tt ")) return std::nullopt;
  const int hour = take_digits(text, 2);
  if (hour < 0 || hour > 23 || !take(text, ":")) return std::nullopt;
  const int minute = take_digits(text, 2);
  if (minute < 0 || minute > 59 || !take(text, ":")) return std::nullopt;
  const int second = take_digits(text, 2);
  if (second < 0 || second > 60) return std::nullopt;
  const std::int64_t fraction = take_fraction_us(text);
  const std::optional<int> offset = take_offset_s(text);
  if (fraction < 0 || !offset || !text.empty()) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const std::int64_t seconds = days * 86'400 + hour * 3'600 + minute * 60 + second - *offset;
  return Timestamp{seconds * 1'000'000 + fraction};
}

std::string format_time(Timestamp time) {
  const Calendar at = split(time);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02dZ", at.year, at.month, at.day, at.hour, at.minute,
                at.second);
  return text;
}

std::string format_micro_time(Timestamp time) {
  const Calendar at = split(time);
  char text[96];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", at.year, at.month, at.day, at.hour, at.minute,
                at.second, at.microsecond);
  return text;
}

}  // namespace penstock::kube
