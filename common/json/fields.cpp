#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "common/json/json.hpp"

namespace penstock::json {

std::string Path::to_string() const {
  std::vector<const Path*> steps;
  for (const Path* step = this; step->parent_ != nullptr; step = step->parent_) steps.push_back(step);
  std::string text;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if ((*step)->name_.data() != nullptr) {
      if (!text.empty()) text += '.';
      text += (*step)->name_.substr(0, 64);
    } else {
      text += '[' + std::to_string((*step)->position_) + ']';
    }
  }
  return text;
}

FieldError::operator Error() const {
  return make_error(ErrorCode::invalid_argument, path.empty() ? reason : path + ": " + reason);
}

void throw_exception_from_error(const FieldError& error, const boost::source_location&) {
  throw std::runtime_error(static_cast<Error>(error).message);
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "true or false";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

namespace {
FieldError wrong_kind(const Path& path, std::string_view wanted, const Value& value) {
  return field_error(path, "must be " + std::string(wanted) + ", is " + std::string(kind_name(value)));
}
template <class T>
std::string range_text(T low, T high) {
  if (low == std::numeric_limits<T>::lowest()) return "must be at most " + std::to_string(high);
  if (high == std::numeric_limits<T>::max()) return "must be at least " + std::to_string(low);
  return "must be between " + std::to_string(low) + " and " + std::to_string(high);
}
std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}
}  // namespace

template <>
FieldResult<bool> as(const Value& value, const Path& path) {
  if (const bool* flag = value.if_bool()) return *flag;
  return wrong_kind(path, "true or false", value);
}

template <>
FieldResult<std::int64_t> as(const Value& value, const Path& path) {
  if (const std::int64_t* number = value.if_int64()) return *number;
  if (value.is_uint64()) return field_error(path, "is too large");
  return wrong_kind(path, "an integer", value);
}

template <>
FieldResult<std::uint64_t> as(const Value& value, const Path& path) {
  if (const std::uint64_t* number = value.if_uint64()) return *number;
  const std::int64_t* number = value.if_int64();
  if (number == nullptr) return wrong_kind(path, "an integer", value);
  if (*number < 0) return field_error(path, "must be at least 0");
  return static_cast<std::uint64_t>(*number);
}

template <>
FieldResult<double> as(const Value& value, const Path& path) {
  if (const double* number = value.if_double()) return *number;
  if (const std::int64_t* number = value.if_int64()) return static_cast<double>(*number);
  if (const std::uint64_t* number = value.if_uint64()) return static_cast<double>(*number);
  return wrong_kind(path, "a number", value);
}

template <>
FieldResult<std::string_view> as(const Value& value, const Path& path) {
  if (const auto* text = value.if_string()) return std::string_view(text->data(), text->size());
  return wrong_kind(path, "a string", value);
}

template <>
FieldResult<const Object*> as(const Value& value, const Path& path) {
  if (const Object* object = value.if_object()) return object;
  return wrong_kind(path, "an object", value);
}

template <>
FieldResult<const Array*> as(const Value& value, const Path& path) {
  if (const Array* array = value.if_array()) return array;
  return wrong_kind(path, "an array", value);
}

FieldError missing(const Path& parent, std::string_view key) {
  return field_error(parent.field(key), "is required");
}

std::string out_of_range(double low, double high) {
  if (low == std::numeric_limits<double>::lowest()) return "must be at most " + short_number(high);
  if (high == std::numeric_limits<double>::max()) return "must be at least " + short_number(low);
  return "must be between " + short_number(low) + " and " + short_number(high);
}
std::string out_of_range(std::int64_t low, std::int64_t high) {
  return range_text(low, high);
}
std::string out_of_range(std::uint64_t low, std::uint64_t high) {
  return range_text(low, high);
}

}  // namespace penstock::json
