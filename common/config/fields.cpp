#include "common/config/fields.hpp"

#include <charconv>
#include <cmath>

#include "common/base/check.hpp"

namespace penstock::config {
namespace {

Error wrong(std::string reason) {
  return make_error(ErrorCode::invalid_argument, std::move(reason));
}

template <class T>
Result<void> parse_whole(std::string_view text, T& out, const char* reason) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return wrong("is out of range");
  if (error != std::errc{} || end != text.data() + text.size()) return wrong(reason);
  out = value;
  return {};
}

}  // namespace

std::string Problems::to_string() const {
  std::string text;
  for (const std::string& problem : list_) text += problem + "\n";
  return text;
}

Result<void> parse_value(std::string_view text, bool& out) {
  if (text == "true" || text == "yes" || text == "on") {
    out = true;
  } else if (text == "false" || text == "no" || text == "off") {
    out = false;
  } else {
    return wrong("must be true or false");
  }
  return {};
}
Result<void> parse_value(std::string_view text, std::int64_t& out) {
  return parse_whole(text, out, "must be an integer");
}
Result<void> parse_value(std::string_view text, std::uint64_t& out) {
  return parse_whole(text, out, text.starts_with('-') ? "must not be negative" : "must be an integer");
}
Result<void> parse_value(std::string_view text, double& out) {
  double value = 0;
  if (auto parsed = parse_whole(text, value, "must be a number"); !parsed) return parsed;
  if (!std::isfinite(value)) return wrong("must be a number");
  out = value;
  return {};
}
Result<void> parse_value(std::string_view text, std::string& out) {
  out = text;
  return {};
}
Result<void> parse_value(std::string_view text, std::filesystem::path& out) {
  out = text;
  return {};
}
Result<void> parse_value(std::string_view text, Duration& out) {
  auto parsed = parse_duration(text);
  if (!parsed) return parsed.error();
  out = *parsed;
  return {};
}
Result<void> parse_value(std::string_view text, ByteSize& out) {
  auto parsed = parse_byte_size(text);
  if (!parsed) return parsed.error();
  out = *parsed;
  return {};
}

std::string format_value(bool value) {
  return value ? "true" : "false";
}
std::string format_value(std::int64_t value) {
  return std::to_string(value);
}
std::string format_value(std::uint64_t value) {
  return std::to_string(value);
}
std::string format_value(double value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}
std::string format_value(const std::string& value) {
  return value;
}
std::string format_value(const std::filesystem::path& value) {
  return value.string();
}
std::string format_value(Duration value) {
  return format_duration(value);
}
std::string format_value(ByteSize value) {
  return format_byte_size(value);
}

namespace detail {

Error not_one_of(std::string_view text, const std::vector<std::string_view>& names) {
  std::string reason = "must be one of ";
  for (std::size_t i = 0; i < names.size(); ++i) reason += (i > 0 ? ", " : "") + std::string(names[i]);
  return wrong(reason + ", not \"" + std::string(text.substr(0, 64)) + "\"");
}

Error out_of_range(std::string_view low, std::string_view high) {
  return wrong("must be between " + std::string(low) + " and " + std::string(high));
}

}  // namespace detail

void Fields::add(FieldEntry entry, std::string_view name) {
  entry.path = prefix_ + std::string(name);
  entry.option = entry.path;
  for (char& c : entry.option) {
    if (c == '.') c = '-';
  }
  for (const FieldEntry& other : entries_) PENSTOCK_CHECK(other.option != entry.option, entry.option);
  for (const std::string& text : entry.read()) {
    if (!entry.default_text.empty()) entry.default_text += ",";
    entry.default_text += text;
  }
  entries_.push_back(std::move(entry));
}

}  // namespace penstock::config
