#include "operator/api/fields.hpp"

#include <algorithm>
#include <charconv>

namespace penstock::ctl::api {
namespace {

constexpr std::string_view all = "All";
constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();

template <class T>
ReadError read_leaf(const json::Value& value, const json::Path& path, T& out) {
  auto leaf = json::as<T>(value, path);
  if (!leaf) return std::move(leaf).error();
  out = *leaf;
  return {};
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 64)) + "'";
}

}  // namespace

ReadError read(const json::Value& value, const json::Path& path, bool& out) {
  return read_leaf(value, path, out);
}

ReadError read(const json::Value& value, const json::Path& path, std::int32_t& out) {
  std::int64_t wide = 0;
  if (auto error = read_leaf(value, path, wide)) return error;
  if (!std::in_range<std::int32_t>(wide)) {
    return json::field_error(path,
                             json::out_of_range(std::int64_t{std::numeric_limits<std::int32_t>::min()}, int32_max));
  }
  out = static_cast<std::int32_t>(wide);
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, std::int64_t& out) {
  return read_leaf(value, path, out);
}

ReadError read(const json::Value& value, const json::Path& path, std::string& out) {
  std::string_view text;
  if (auto error = read_leaf(value, path, text)) return error;
  out = text;
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, kube::Quantity& out) {
  if (value.is_int64()) {
    out = kube::Quantity::of(value.get_int64());
    return {};
  }
  std::string_view text;
  if (auto error = read_leaf(value, path, text)) return error;
  const auto quantity = kube::Quantity::parse(text);
  if (!quantity) return json::field_error(path, quoted(text) + " is no quantity, such as 8Gi");
  out = *quantity;
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, kube::Timestamp& out) {
  std::string_view text;
  if (auto error = read_leaf(value, path, text)) return error;
  const auto time = kube::parse_timestamp(text);
  if (!time) return json::field_error(path, quoted(text) + " is no RFC 3339 time");
  out = *time;
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, CountOrPercent& out) {
  out.is_percent = !value.is_int64();
  if (!out.is_percent) return read(value, path, out.value);
  std::string_view text;
  if (auto error = read_leaf(value, path, text)) return error;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  const bool is_number = failure == std::errc() && out.value >= 0;
  if (!is_number || std::string_view(end, text.data() + text.size()) != "%") {
    return json::field_error(path, quoted(text) + " is neither a count nor a percentage, such as 25%");
  }
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, CountOrAll& out) {
  out.count.reset();
  if (value.is_int64()) return read(value, path, out.count.emplace());
  std::string_view text;
  if (auto error = read_leaf(value, path, text)) return error;
  if (text != all) return json::field_error(path, quoted(text) + " is neither a count nor All");
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, TextMap& out) {
  auto object = json::as<const json::Object*>(value, path);
  if (!object) return std::move(object).error();
  out.clear();
  for (const auto& [key, item] : **object) {
    std::string text;
    if (auto error = read(item, path.field(key), text)) return error;
    out.emplace(key, std::move(text));
  }
  return {};
}

ReadError read(const json::Value& value, const json::Path& path, json::Object& out) {
  auto object = json::as<const json::Object*>(value, path);
  if (!object) return std::move(object).error();
  out = **object;
  return {};
}

json::FieldError not_one_of(const json::Path& path, std::string_view text, const std::vector<std::string_view>& names) {
  std::string reason = quoted(text) + " is not one of ";
  for (std::size_t i = 0; i < names.size(); ++i) reason += (i == 0 ? "" : ", ") + std::string(names[i]);
  return json::field_error(path, std::move(reason));
}

json::Value write(bool value) {
  return json::Value(value);
}
json::Value write(std::int32_t value) {
  return json::Value(std::int64_t{value});
}
json::Value write(std::int64_t value) {
  return json::Value(value);
}
json::Value write(const std::string& value) {
  return value.empty() ? json::Value() : json::Value(value);
}
json::Value write(const kube::Quantity& value) {
  return json::Value(value.to_string());
}
json::Value write(const kube::Timestamp& value) {
  return json::Value(kube::format_time(value));
}

json::Value write(const CountOrPercent& value) {
  if (!value.is_percent) return write(value.value);
  return json::Value(std::to_string(value.value) + "%");
}

json::Value write(const CountOrAll& value) {
  return value.count ? write(*value.count) : json::Value(all);
}

json::Value write(const TextMap& value) {
  if (value.empty()) return {};
  json::Object object;
  for (const auto& [key, text] : value) object[key] = text;
  return object;
}

json::Value write(const json::Object& value) {
  return value.empty() ? json::Value() : json::Value(value);
}
json::Value write(const kube::Conditions& value) {
  return kube::to_json(value);
}

Shape condition_shape() {
  const Shape text{ShapeKind::text, {}, {}, {}};
  return {ShapeKind::object,
          {},
          {{"type", text, true, false, {}},
           {"status", Shape{ShapeKind::choice, {"True", "False", "Unknown"}, {}, {}}, true, false, {}},
           {"reason", text, true, false, {}},
           {"message", text, true, false, {}},
           {"lastTransitionTime", Shape{ShapeKind::time, {}, {}, {}}, true, false, {}},
           {"observedGeneration", Shape{ShapeKind::integer64, {}, {}, {}}, false, false, {}}},
          {}};
}

}  // namespace penstock::ctl::api
