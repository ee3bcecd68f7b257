// One declaration of a struct's fields serves reading, writing and the comparison with the schema:
//
//   template <class Visitor, Same<RdmaSpec> S>
//   void describe(Visitor& field, S& s) {
//     field.required("resourceName", s.resource_name);
//     field("count", s.count);
//   }
//
// The visitors are FieldReader, FieldWriter and ShapeBuilder. Included by the .cpp files of operator/api only. Pure;
// any thread; depth is that of the structs.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"
#include "operator/api/names.hpp"
#include "operator/api/shape.hpp"

namespace penstock::ctl::api {

template <class S, class T>
concept Same = std::same_as<std::remove_const_t<S>, T>;

using TextMap = std::map<std::string, std::string>;
using ReadError = std::optional<json::FieldError>;

template <class Visitor, Same<NameRef> S>
void describe(Visitor& field, S& s) {
  field.required("name", s.name);
}

template <class T>
struct ItemOf {
  using Type = int;
};
template <class T>
struct ItemOf<std::vector<T>> {
  using Type = T;
};
template <class T>
struct ItemOf<std::optional<T>> {
  using Type = T;
};

/// Leaves; each returns the error, or nothing.
ReadError read(const json::Value& value, const json::Path& path, bool& out);
ReadError read(const json::Value& value, const json::Path& path, std::int32_t& out);
ReadError read(const json::Value& value, const json::Path& path, std::int64_t& out);
ReadError read(const json::Value& value, const json::Path& path, std::string& out);
ReadError read(const json::Value& value, const json::Path& path, kube::Quantity& out);
ReadError read(const json::Value& value, const json::Path& path, kube::Timestamp& out);
ReadError read(const json::Value& value, const json::Path& path, CountOrPercent& out);
ReadError read(const json::Value& value, const json::Path& path, CountOrAll& out);
ReadError read(const json::Value& value, const json::Path& path, TextMap& out);
ReadError read(const json::Value& value, const json::Path& path, json::Object& out);
json::FieldError not_one_of(const json::Path& path, std::string_view text, const std::vector<std::string_view>& names);

/// Null means: nothing to write.
json::Value write(bool value);
json::Value write(std::int32_t value);
json::Value write(std::int64_t value);
json::Value write(const std::string& value);
json::Value write(const kube::Quantity& value);
json::Value write(const kube::Timestamp& value);
json::Value write(const CountOrPercent& value);
json::Value write(const CountOrAll& value);
json::Value write(const TextMap& value);
json::Value write(const json::Object& value);
json::Value write(const kube::Conditions& value);

Shape condition_shape();

template <NamedEnum E>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (const auto& named : api_names(E{})) names.push_back(named.first);
  return names;
}

class FieldReader {
 public:
  FieldReader(const json::Object& object, const json::Path& path) : object_(object), path_(path) {}

  template <class T>
  void operator()(std::string_view name, T& place) {
    if (error) return;
    const json::Value* value = object_.if_contains(name);
    if (value != nullptr && !value->is_null()) read_into(*value, path_.field(name), place);
  }
  template <class T>
  void required(std::string_view name, T& place) {
    if (error) return;
    const json::Value* value = object_.if_contains(name);
    if (value == nullptr || value->is_null()) {
      error = json::missing(path_, name);
      return;
    }
    read_into(*value, path_.field(name), place);
  }
  void conditions(kube::Conditions& place) { place = kube::parse_conditions(object_); }

  ReadError error;

 private:
  template <class T>
  void read_into(const json::Value& value, const json::Path& path, T& place);

  const json::Object& object_;
  const json::Path& path_;
};

template <NamedEnum E>
ReadError read(const json::Value& value, const json::Path& path, E& out) {
  auto text = json::as<std::string_view>(value, path);
  if (!text) return std::move(text).error();
  for (const auto& [name, candidate] : api_names(E{})) {
    if (name == *text) {
      out = candidate;
      return {};
    }
  }
  return not_one_of(path, *text, names_of<E>());
}

template <class T>
  requires requires(FieldReader& reader, T& place) { describe(reader, place); }
ReadError read(const json::Value& value, const json::Path& path, T& out) {
  auto object = json::as<const json::Object*>(value, path);
  if (!object) return std::move(object).error();
  FieldReader reader(**object, path);
  describe(reader, out);
  return std::move(reader.error);
}

template <class T>
ReadError read(const json::Value& value, const json::Path& path, std::optional<T>& out) {
  return read(value, path, out.emplace());
}

template <class T>
ReadError read(const json::Value& value, const json::Path& path, std::vector<T>& out) {
  auto array = json::as<const json::Array*>(value, path);
  if (!array) return std::move(array).error();
  out.clear();
  out.reserve((*array)->size());
  for (std::size_t i = 0; i < (*array)->size(); ++i) {
    if (auto error = read((**array)[i], path.index(i), out.emplace_back())) return error;
  }
  return {};
}

template <class T>
void FieldReader::read_into(const json::Value& value, const json::Path& path, T& place) {
  error = read(value, path, place);
}

class FieldWriter {
 public:
  template <class T>
  void operator()(std::string_view name, const T& value);
  template <class T>
  void required(std::string_view name, const T& value);
  void conditions(const kube::Conditions& value) {
    if (!value.empty()) object["conditions"] = write(value);
  }

  json::Object object;
};

template <NamedEnum E>
json::Value write(E value) {
  return json::Value(to_string(value));
}

template <class T>
  requires requires(FieldWriter& writer, const T& value) { describe(writer, value); }
json::Value write(const T& value) {
  FieldWriter writer;
  describe(writer, value);
  return writer.object.empty() ? json::Value() : json::Value(std::move(writer.object));
}

template <class T>
json::Value write(const std::optional<T>& value);
template <class T>
json::Value write(const std::vector<T>& value);

/// What must be written even if it is empty: required fields, items of lists, structs that are there.
template <class T>
json::Value write_present(const T& value) {
  json::Value written = write(value);
  if (!written.is_null()) return written;
  if constexpr (std::same_as<T, std::string>) {
    return json::Value("");
  } else if constexpr (std::same_as<T, std::vector<typename ItemOf<T>::Type>>) {
    return json::Array();
  } else {
    return json::Object();
  }
}

template <class T>
json::Value write(const std::optional<T>& value) {
  return value ? write_present(*value) : json::Value();
}

template <class T>
json::Value write(const std::vector<T>& value) {
  if (value.empty()) return {};
  json::Array array;
  array.reserve(value.size());
  for (const T& item : value) array.push_back(write_present(item));
  return array;
}

template <class T>
void FieldWriter::operator()(std::string_view name, const T& value) {
  json::Value written = write(value);
  if (!written.is_null()) object[name] = std::move(written);
}

template <class T>
void FieldWriter::required(std::string_view name, const T& value) {
  object[name] = write_present(value);
}

class ShapeBuilder {
 public:
  template <class T>
  void operator()(std::string_view name, const T& initial) {
    add(name, initial, false);
  }
  template <class T>
  void required(std::string_view name, const T& initial) {
    add(name, initial, true);
  }
  void conditions(const kube::Conditions&) {
    shape.fields.push_back({"conditions", Shape{ShapeKind::list, {}, {}, {condition_shape()}}, false, false, {}});
  }

  Shape shape{ShapeKind::object, {}, {}, {}};

 private:
  template <class T>
  void add(std::string_view name, const T& initial, bool required);
};

template <class T>
Shape shape_of() {
  using Item = typename ItemOf<T>::Type;
  if constexpr (std::same_as<T, bool>) {
    return {ShapeKind::boolean, {}, {}, {}};
  } else if constexpr (std::same_as<T, std::int32_t>) {
    return {ShapeKind::integer32, {}, {}, {}};
  } else if constexpr (std::same_as<T, std::int64_t>) {
    return {ShapeKind::integer64, {}, {}, {}};
  } else if constexpr (std::same_as<T, std::string>) {
    return {ShapeKind::text, {}, {}, {}};
  } else if constexpr (NamedEnum<T>) {
    return {ShapeKind::choice, names_of<T>(), {}, {}};
  } else if constexpr (std::same_as<T, kube::Quantity>) {
    return {ShapeKind::quantity, {}, {}, {}};
  } else if constexpr (std::same_as<T, kube::Timestamp>) {
    return {ShapeKind::time, {}, {}, {}};
  } else if constexpr (std::same_as<T, CountOrPercent>) {
    return {ShapeKind::count_or_percent, {}, {}, {}};
  } else if constexpr (std::same_as<T, CountOrAll>) {
    return {ShapeKind::count_or_all, {}, {}, {}};
  } else if constexpr (std::same_as<T, TextMap>) {
    return {ShapeKind::text_map, {}, {}, {}};
  } else if constexpr (std::same_as<T, json::Object>) {
    return {ShapeKind::any, {}, {}, {}};
  } else if constexpr (std::same_as<T, std::optional<Item>>) {
    return shape_of<Item>();
  } else if constexpr (std::same_as<T, std::vector<Item>>) {
    return {ShapeKind::list, {}, {}, {shape_of<Item>()}};
  } else {
    ShapeBuilder builder;
    const T initial{};
    describe(builder, initial);
    return std::move(builder.shape);
  }
}

template <class T>
void ShapeBuilder::add(std::string_view name, const T& initial, bool required) {
  constexpr bool optional = std::same_as<T, std::optional<typename ItemOf<T>::Type>>;
  shape.fields.push_back({std::string(name), shape_of<T>(), required, optional, write(initial)});
}

/// A whole object: apiVersion and kind are not looked at.
template <class Resource>
json::FieldResult<Resource> read_resource(const json::Value& object) {
  const json::Path root;
  auto members = json::as<const json::Object*>(object, root);
  if (!members) return std::move(members).error();
  Resource resource;
  auto metadata = kube::parse_meta(**members);
  if (!metadata) return json::field_error(root.field("metadata"), metadata.error().message);
  resource.meta = std::move(*metadata);
  FieldReader reader(**members, root);
  reader("spec", resource.spec);
  reader("status", resource.status);
  if (reader.error) return std::move(*reader.error);
  return resource;
}

template <class T>
json::Object write_object(const T& value) {
  FieldWriter writer;
  describe(writer, value);
  return std::move(writer.object);
}

}  // namespace penstock::ctl::api
