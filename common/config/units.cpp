#include "common/config/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

namespace penstock::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 7> duration_units{
    {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}}};
constexpr std::array<Unit, 9> size_units{{{"B", 1},
                                          {"KiB", 1024},
                                          {"MiB", 1048576},
                                          {"GiB", 1073741824},
                                          {"TiB", 1099511627776},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12}}};

/// The number at the start and what follows it; nothing if there is no plain, non-negative number.
std::pair<double, std::string_view> split_number(std::string_view text, bool& ok) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  ok = error == std::errc{} && std::isfinite(number) && !std::signbit(number);
  if (!ok) return {0, {}};
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return {number, rest};
}

const Unit* find_unit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  bool ok = false;
  auto [number, rest] = split_number(text, ok);
  const Unit* unit = ok ? find_unit(duration_units, rest) : nullptr;
  if (ok && rest.empty() && number == 0) return Duration::zero();
  if (unit == nullptr) {
    return make_error(ErrorCode::invalid_argument, "must be a duration such as 500ms, 10s or 5m");
  }
  const double nanoseconds = std::round(number * unit->factor);
  if (nanoseconds > 9.2e18) return make_error(ErrorCode::invalid_argument, "is longer than 292 years");
  return Duration(static_cast<std::int64_t>(nanoseconds));
}

std::string format_duration(Duration duration) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 6> units{{{"h", 3'600'000'000'000},
                                                                            {"m", 60'000'000'000},
                                                                            {"s", 1'000'000'000},
                                                                            {"ms", 1'000'000},
                                                                            {"us", 1'000},
                                                                            {"ns", 1}}};
  const std::int64_t count = duration.count();
  if (count == 0) return "0s";
  for (const auto& [name, factor] : units) {
    if (count % factor == 0) return std::to_string(count / factor) + std::string(name);
  }
  return std::to_string(count) + "ns";
}

Result<ByteSize> parse_byte_size(std::string_view text) {
  std::uint64_t whole = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc{} && end == text.data() + text.size()) return ByteSize{whole};
  bool ok = false;
  auto [number, rest] = split_number(text, ok);
  const Unit* unit = ok ? find_unit(size_units, rest) : nullptr;
  if (unit == nullptr) {
    return make_error(ErrorCode::invalid_argument, "must be a size such as 4096, 64KiB, 1.5GiB or 2GB");
  }
  const double bytes = std::round(number * unit->factor);
  if (bytes > 9.2e18) return make_error(ErrorCode::invalid_argument, "is larger than 8 EiB");
  return ByteSize{static_cast<std::uint64_t>(bytes)};
}

std::string format_byte_size(ByteSize size) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  std::uint64_t count = size.bytes;
  while (unit + 1 < names.size() && count > 0 && count % 1024 == 0) {
    count /= 1024;
    ++unit;
  }
  return std::to_string(count) + std::string(names[unit]);
}

}  // namespace penstock::config
