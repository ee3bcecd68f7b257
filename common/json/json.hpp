// Strict JSON in: parse under limits, then typed reads whose errors carry the path of the field. Parsing is Boost.JSON;
// its value type may be used by callers, its parser only here. Pure; any thread. Text is hostile.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;

struct Limits {
  std::size_t depth_max = 64;
  std::size_t keys_max = 10'000;         // over the whole document
  std::size_t text_bytes_max = 8 << 20;  // of the input
};

/// One complete document. Refused with the byte offset: bad syntax or UTF-8, trailing text, duplicate keys, numbers
/// that are not finite, anything over a limit. The error's code is invalid_argument, or resource_exhausted for a limit.
Result<Value> parse(std::string_view text, const Limits& limits = {});

/// Where a value stands in the document. A path holds a pointer to its parent, which must outlive it; nothing is
/// allocated until to_string(), so paths cost nothing on the good way.
class Path {
 public:
  Path() = default;
  Path field(std::string_view name) const { return Path(this, name, 0); }
  Path index(std::size_t position) const { return Path(this, {}, position); }
  std::string to_string() const;  // "messages[2].role"; "" for the document

 private:
  Path(const Path* parent, std::string_view name, std::size_t position)
      : parent_(parent), name_(name), position_(position) {}
  const Path* parent_ = nullptr;
  std::string_view name_;
  std::size_t position_ = 0;
};

/// A field that is missing or wrong. Turns into an Error (invalid_argument, "path: reason") by itself, so PENSTOCK_TRY
/// works in functions that return Result; front doors that report a `param` keep the path.
struct FieldError {
  std::string path;
  std::string reason;  // "must be a string, is a number"

  operator Error() const;  // NOLINT: implicit on purpose
};
[[noreturn]] void throw_exception_from_error(const FieldError& error, const boost::source_location& where);

template <class T>
using FieldResult = boost::system::result<T, FieldError>;

inline FieldError field_error(const Path& path, std::string reason) {
  return {path.to_string(), std::move(reason)};
}

std::string_view kind_name(const Value& value);  // "a string", "null", ...

/// Typed reads of one value. Integers accept only integer syntax; double accepts both. Views point into the value.
/// T is one of: bool, std::int64_t, std::uint64_t, double, std::string_view, const Object*, const Array*.
template <class T>
FieldResult<T> as(const Value& value, const Path& path);
template <>
FieldResult<bool> as(const Value& value, const Path& path);
template <>
FieldResult<std::int64_t> as(const Value& value, const Path& path);
template <>
FieldResult<std::uint64_t> as(const Value& value, const Path& path);
template <>
FieldResult<double> as(const Value& value, const Path& path);
template <>
FieldResult<std::string_view> as(const Value& value, const Path& path);
template <>
FieldResult<const Object*> as(const Value& value, const Path& path);
template <>
FieldResult<const Array*> as(const Value& value, const Path& path);

/// The inclusive bounds of a number.
template <class T>
struct Range {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
};

FieldError missing(const Path& parent, std::string_view key);
std::string out_of_range(double low, double high);
std::string out_of_range(std::int64_t low, std::int64_t high);
std::string out_of_range(std::uint64_t low, std::uint64_t high);

/// A field that must be there. `path` is that of the object.
template <class T>
FieldResult<T> required(const Object& object, std::string_view key, const Path& path) {
  const Value* value = object.if_contains(key);
  if (value == nullptr) return missing(path, key);
  return as<T>(*value, path.field(key));
}

/// A field that may be absent or null.
template <class T>
FieldResult<std::optional<T>> optional(const Object& object, std::string_view key, const Path& path) {
  const Value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return std::optional<T>();
  auto read = as<T>(*value, path.field(key));
  if (!read) return std::move(read).error();
  return std::optional<T>(*read);
}

/// The same for numbers, with bounds.
template <class T>
FieldResult<std::optional<T>> optional(const Object& object, std::string_view key, const Path& path, Range<T> range) {
  auto read = optional<T>(object, key, path);
  if (read && read->has_value() && (**read < range.low || **read > range.high)) {
    return field_error(path.field(key), out_of_range(range.low, range.high));
  }
  return read;
}

}  // namespace penstock::json
