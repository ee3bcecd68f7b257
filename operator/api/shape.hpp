// What the C++ structs of a custom resource hold, as data: derived from the same field tables that parse and write, and
// compared with the schemas in crds/ by a test. Built on demand; a tree of some hundred nodes. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"
#include "common/kube/model/resource_type.hpp"

namespace penstock::ctl::api {

enum class ShapeKind : std::uint8_t {
  boolean,
  integer32,
  integer64,
  text,
  choice,            // text that is one of `choices`
  quantity,          // integer or text
  time,              // RFC 3339 text
  count_or_percent,  // integer or text
  count_or_all,      // integer or text
  text_map,
  list,    // of items[0]
  object,  // of `fields`
  any,     // an object that is not looked into
};

struct FieldShape;
struct Shape {
  ShapeKind kind = ShapeKind::any;
  std::vector<std::string_view> choices;
  std::vector<FieldShape> fields;
  std::vector<Shape> items;
};

struct FieldShape {
  std::string name;
  Shape shape;
  bool required = false;
  bool optional = false;  // std::optional: may be absent after defaults are applied
  json::Value initial;    // of the member; null if it is absent or empty
};

struct KindShape {
  kube::ResourceType type;
  Shape spec;
  Shape status;
};

/// All kinds of the group.
std::vector<KindShape> kind_shapes();

}  // namespace penstock::ctl::api
