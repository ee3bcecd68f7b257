#include "router/core/api/trace_context.hpp"

#include <algorithm>

#include "common/base/id.hpp"

namespace penstock::router {
namespace {

// version "-" trace id "-" parent id "-" flags
constexpr std::size_t trace_at = 3, trace_digits = 32, parent_at = 36, parent_digits = 16, flags_at = 53;
constexpr std::size_t length = 55;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

bool is_valid(std::string_view text) {
  if (text.size() < length || text[2] != '-' || text[parent_at - 1] != '-' || text[flags_at - 1] != '-') return false;
  const std::string_view version = text.substr(0, 2), trace = text.substr(trace_at, trace_digits),
                         parent = text.substr(parent_at, parent_digits), flags = text.substr(flags_at, 2);
  if (!is_hex(version) || version == "ff" || !is_hex(trace) || !is_hex(parent) || !is_hex(flags)) return false;
  if (is_zero(trace) || is_zero(parent)) return false;
  // Later versions may say more after the flags; of what we know nothing is passed on.
  return version == "00" ? text.size() == length : text.size() == length || text[length] == '-';
}

std::string span_hex(std::uint64_t span) {
  return base::hex128(0, std::max<std::uint64_t>(span, 1)).substr(16);
}

}  // namespace

std::string child_trace(std::string_view parent, std::uint64_t span) {
  if (!is_valid(parent)) return {};
  std::string out = "00-";
  out += parent.substr(trace_at, trace_digits);
  out += "-" + span_hex(span) + "-";
  out += parent.substr(flags_at, 2);
  return out;
}

std::string new_trace(std::uint64_t trace_high, std::uint64_t trace_low, std::uint64_t span) {
  return "00-" + base::hex128(trace_high, std::max<std::uint64_t>(trace_low, 1)) + "-" + span_hex(span) + "-01";
}

}  // namespace penstock::router
