#include "docs/reference/reference.hpp"

#include <boost/json/serialize.hpp>
#include <vector>

namespace penstock::reference {
namespace {

using json::Object;
using json::Value;

std::string_view text(const Object& schema, std::string_view key) {
  const Value* value = schema.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

std::string number(const Object& schema, std::string_view key) {
  const Value* value = schema.if_contains(key);
  return value == nullptr ? "" : boost::json::serialize(*value);
}

/// A default as people write it in YAML.
std::string literal(const Value& value) {
  return value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
}

std::string bounds(const Object& schema, std::string_view low_key, std::string_view high_key) {
  const std::string low = number(schema, low_key), high = number(schema, high_key);
  if (!low.empty() && !high.empty()) return low + " to " + high;
  if (!low.empty()) return "at least " + low;
  if (!high.empty()) return "at most " + high;
  return "";
}

std::string choices(const Object& schema) {
  std::string out;
  for (const Value& name : schema.at("enum").as_array()) out += (out.empty() ? "`" : ", `") + literal(name) + "`";
  return out;
}

std::string with_bounds(std::string type, const std::string& range, std::string_view unit) {
  if (!range.empty()) type += ", " + range + std::string(unit);
  return type;
}

std::string type_of(const Object& schema) {
  if (schema.contains("enum")) return choices(schema);
  if (schema.contains("x-kubernetes-int-or-string")) {
    return with_bounds("integer", bounds(schema, "minimum", "maximum"), "") + ", or text like `" +
           std::string(text(schema, "pattern")) + "`";
  }
  const std::string_view type = text(schema, "type");
  if (type == "integer") return with_bounds("integer", bounds(schema, "minimum", "maximum"), "");
  if (type == "boolean") return "true or false";
  if (type == "string") {
    if (text(schema, "format") == "date-time") return "time";
    return with_bounds("text", bounds(schema, "minLength", "maxLength"), " characters");
  }
  if (type == "array") return with_bounds("list", bounds(schema, "minItems", "maxItems"), " items");
  if (schema.contains("additionalProperties")) {
    return with_bounds("map of text", bounds(schema, "minProperties", "maxProperties"), " entries");
  }
  if (schema.contains("x-kubernetes-preserve-unknown-fields")) return "object, kept as given";
  return "object";
}

/// "|" would end a table cell.
std::string cell(std::string_view in) {
  std::string out;
  for (const char c : in) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

bool is_required(const Object& parent, std::string_view name) {
  const Value* list = parent.if_contains("required");
  if (list == nullptr) return false;
  for (const Value& item : list->as_array()) {
    if (item.as_string() == name) return true;
  }
  return false;
}

std::string default_of(const Object& parent, std::string_view name, const Object& schema) {
  if (is_required(parent, name)) return "required";
  const Value* value = schema.if_contains("default");
  // The default {} of an object only brings in the defaults of its fields.
  if (value == nullptr || (value->is_object() && value->get_object().empty())) return "";
  return "`" + literal(*value) + "`";
}

void append_fields(std::string& out, const Object& schema, const std::string& path) {
  const Value* properties = schema.if_contains("properties");
  if (properties == nullptr) return;
  for (const auto& property : properties->as_object()) {
    const Object& field = property.value().as_object();
    const std::string_view name = property.key();
    std::string place = path + "." + std::string(name);
    const bool is_list = text(field, "type") == "array";
    if (is_list) place += "[]";
    const Object& inner = is_list ? field.at("items").as_object() : field;
    std::string type = type_of(field);
    if (is_list && text(inner, "type") == "string") type += " of " + type_of(inner);
    out += "| `" + place + "` | " + cell(type) + " | " + cell(default_of(schema, name, field)) + " | " +
           cell(text(field, "description")) + " |\n";
    append_fields(out, inner, place);
  }
}

void append_rules(std::string& out, const Object& schema, const std::string& path) {
  if (const Value* rules = schema.if_contains("x-kubernetes-validations")) {
    for (const Value& rule : rules->as_array()) {
      out += "| `" + (path.empty() ? "object" : path) + "` | " + cell(text(rule.as_object(), "message")) + " |\n";
    }
  }
  if (const Value* properties = schema.if_contains("properties")) {
    for (const auto& property : properties->as_object()) {
      const std::string name(property.key());
      append_rules(out, property.value().as_object(), path.empty() ? name : path + "." + name);
    }
  }
  if (const Value* items = schema.if_contains("items")) append_rules(out, items->as_object(), path + "[]");
}

std::string joined(const Value& list) {
  std::string out;
  for (const Value& item : list.as_array()) out += (out.empty() ? "`" : ", `") + literal(item) + "`";
  return out;
}

void append_section(std::string& out, const Object& properties, std::string_view name) {
  const Object& schema = properties.at(name).as_object();
  out += "\n## " + std::string(name) + "\n\n" + std::string(text(schema, "description")) + "\n\n";
  out += "| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |\n";
  append_fields(out, schema, std::string(name));
}

}  // namespace

std::string page_name(const Value& definition) {
  return std::string(definition.at("spec").at("names").at("singular").as_string()) + ".md";
}

std::string render_page(const Value& definition) {
  const Object& spec = definition.at("spec").as_object();
  const Object& names = spec.at("names").as_object();
  const Object& version = spec.at("versions").as_array().at(0).as_object();
  const Object& schema = version.at("schema").at("openAPIV3Schema").as_object();
  const Object& properties = schema.at("properties").as_object();
  const std::string plural = literal(names.at("plural"));

  std::string out = "# " + literal(names.at("kind")) + "\n\n";
  out += "<!-- Made from crds/" + plural + ".yaml by penstock-reference; change that file, not this one. -->\n\n";
  out += std::string(text(schema, "description")) + "\n\n";
  out += "`" + literal(spec.at("group")) + "/" + literal(version.at("name")) + "`, ";
  out += literal(spec.at("scope")) == "Namespaced" ? "in a namespace" : "in the whole cluster";
  out += "; `kubectl get " + plural + "`, short name " + joined(names.at("shortNames")) + ".\n";
  append_section(out, properties, "spec");
  std::string rules;
  append_rules(rules, schema, "");
  if (!rules.empty()) {
    out += "\n## Rules\n\nThe API server refuses an object that breaks one, with this message.\n\n";
    out += "| Where | Message |\n| --- | --- |\n" + rules;
  }
  append_section(out, properties, "status");
  return out;
}

}  // namespace penstock::reference
