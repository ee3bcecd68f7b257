#include "router/core/output/tool_set.hpp"

namespace penstock::router {
namespace {

void add_type(std::string_view type, ParameterKinds& kinds) {
  if (type == "string") {
    kinds.text = true;
  } else if (type == "null") {
    kinds.null = true;
  } else {
    kinds.other = true;
  }
}

void add_value(const json::Value& value, ParameterKinds& kinds) {
  if (value.is_string()) {
    kinds.text = true;
  } else if (value.is_null()) {
    kinds.null = true;
  } else {
    kinds.other = true;
  }
}

// One level of alternatives is read; what lies deeper counts as not said.
void add_schema(const json::Object& schema, unsigned levels, ParameterKinds& kinds) {
  const json::Value* type = schema.if_contains("type");
  if (type != nullptr && type->is_string()) return add_type(type->get_string(), kinds);
  if (type != nullptr && type->is_array()) {
    for (const auto& one : type->get_array()) {
      if (one.is_string()) add_type(one.get_string(), kinds);
    }
    return;
  }
  if (const json::Value* values = schema.if_contains("enum"); values != nullptr && values->is_array()) {
    for (const auto& value : values->get_array()) add_value(value, kinds);
  }
  if (const json::Value* value = schema.if_contains("const")) add_value(*value, kinds);
  for (std::string_view key : {"anyOf", "oneOf"}) {
    const json::Value* alternatives = schema.if_contains(key);
    if (levels == 0 || alternatives == nullptr || !alternatives->is_array()) continue;
    for (const auto& one : alternatives->get_array()) {
      if (one.is_object()) add_schema(one.get_object(), levels - 1, kinds);
    }
  }
}

const json::Object* object_at(const json::Object& parent, std::string_view key) {
  const json::Value* value = parent.if_contains(key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

}  // namespace

void ToolSet::add(std::string_view name, const json::Object& function) {
  Parameters& parameters = tools_[std::string(name)];
  const json::Object* schema = object_at(function, "parameters");
  const json::Object* properties = schema != nullptr ? object_at(*schema, "properties") : nullptr;
  if (properties == nullptr) return;
  for (const auto& [key, value] : *properties) {
    ParameterKinds kinds;
    if (value.is_object()) add_schema(value.get_object(), 1, kinds);
    parameters[std::string(key)] = kinds;
  }
}

ParameterKinds ToolSet::kinds(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return {};
  const auto one = found->second.find(parameter);
  return one == found->second.end() ? ParameterKinds{} : one->second;
}

}  // namespace penstock::router
