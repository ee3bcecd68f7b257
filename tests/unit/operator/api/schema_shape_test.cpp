// Each schema in crds/ against the C++ structs, both ways: the same fields, types, enumerators, required fields and
// defaults. A field added on one side only fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "operator/api/shape.hpp"
#include "tests/unit/operator/api/files.hpp"

namespace penstock::ctl::api {
namespace {

enum class Side : std::uint8_t { spec, status };

std::string_view text(const json::Object& schema, std::string_view key) {
  const json::Value* value = schema.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

bool flag(const json::Object& schema, std::string_view key) {
  const json::Value* value = schema.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::set<std::string> texts(const json::Object& schema, std::string_view key) {
  std::set<std::string> all;
  if (const json::Value* list = schema.if_contains(key)) {
    for (const json::Value& item : list->as_array()) all.insert(std::string(item.as_string()));
  }
  return all;
}

class Walker {
 public:
  explicit Walker(Side side) : side_(side) {}

  void compare(const json::Object& schema, const Shape& shape, const std::string& path) {
    EXPECT_FALSE(text(schema, "description").empty() && !path.ends_with("[]")) << path << ": describe it";
    switch (shape.kind) {
      case ShapeKind::boolean:
        return expect_type(schema, "boolean", path);
      case ShapeKind::integer32:
        return compare_integer(schema, "int32", path);
      case ShapeKind::integer64:
        return compare_integer(schema, "int64", path);
      case ShapeKind::text:
        expect_type(schema, "string", path);
        EXPECT_TRUE(schema.contains("maxLength")) << path << ": give maxLength";
        EXPECT_FALSE(schema.contains("enum")) << path << ": an enum in the schema, text in C++";
        return;
      case ShapeKind::choice:
        return compare_choice(schema, shape, path);
      case ShapeKind::time:
        expect_type(schema, "string", path);
        EXPECT_EQ(text(schema, "format"), "date-time") << path;
        return;
      case ShapeKind::quantity:
      case ShapeKind::count_or_percent:
      case ShapeKind::count_or_all:
        EXPECT_TRUE(flag(schema, "x-kubernetes-int-or-string")) << path;
        EXPECT_TRUE(schema.contains("pattern") && schema.contains("maxLength")) << path << ": bound the text";
        return;
      case ShapeKind::text_map:
        expect_type(schema, "object", path);
        EXPECT_TRUE(schema.contains("additionalProperties") && schema.contains("maxProperties")) << path;
        return;
      case ShapeKind::list:
        return compare_list(schema, shape, path);
      case ShapeKind::object:
        return compare_object(schema, shape, path);
      case ShapeKind::any:
        return expect_type(schema, "object", path);
    }
  }

 private:
  static void expect_type(const json::Object& schema, std::string_view type, const std::string& path) {
    EXPECT_EQ(text(schema, "type"), type) << path;
  }

  void compare_integer(const json::Object& schema, std::string_view format, const std::string& path) {
    expect_type(schema, "integer", path);
    EXPECT_EQ(text(schema, "format"), format) << path;
    EXPECT_TRUE(schema.contains("minimum")) << path << ": give minimum";
    EXPECT_TRUE(side_ == Side::status || schema.contains("maximum")) << path << ": give maximum";
  }

  static void compare_choice(const json::Object& schema, const Shape& shape, const std::string& path) {
    expect_type(schema, "string", path);
    std::vector<std::string_view> names;
    if (const json::Value* list = schema.if_contains("enum")) {
      for (const json::Value& item : list->as_array()) {
        ASSERT_TRUE(item.is_string()) << path << ": quote the enumerators";
        names.push_back(item.as_string());
      }
    }
    EXPECT_EQ(names, shape.choices) << path;
  }

  void compare_list(const json::Object& schema, const Shape& shape, const std::string& path) {
    expect_type(schema, "array", path);
    EXPECT_TRUE(schema.contains("maxItems")) << path << ": give maxItems";
    const std::string_view list_type = text(schema, "x-kubernetes-list-type");
    EXPECT_FALSE(list_type.empty()) << path << ": give x-kubernetes-list-type";
    const Shape& item = shape.items.front();
    EXPECT_EQ(list_type == "map", item.kind == ShapeKind::object) << path << ": lists of objects merge by a key";
    compare(schema.at("items").as_object(), item, path + "[]");
  }

  void compare_object(const json::Object& schema, const Shape& shape, const std::string& path) {
    expect_type(schema, "object", path);
    const json::Object& properties = schema.at("properties").as_object();
    std::set<std::string> names, required;
    for (const FieldShape& field : shape.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << path << "." << field.name << " is read twice";
      if (field.required) required.insert(field.name);
      const std::string place = path + "." + field.name;
      const json::Value* property = properties.if_contains(field.name);
      if (property == nullptr) {
        ADD_FAILURE() << place << " is in C++ and not in the schema";
        continue;
      }
      compare(property->as_object(), field.shape, place);
      if (side_ == Side::spec) compare_default(property->as_object(), field, place);
    }
    for (const auto& property : properties) {
      EXPECT_TRUE(names.contains(std::string(property.key())))
          << path << "." << property.key() << " is in the schema and not in C++";
    }
    EXPECT_EQ(texts(schema, "required"), required) << path;
  }

  static void compare_default(const json::Object& schema, const FieldShape& field, const std::string& path) {
    const json::Value* value = schema.if_contains("default");
    if (field.required || field.optional) {
      EXPECT_EQ(value, nullptr) << path << ": a default for what is required or may be absent";
    } else if (field.shape.kind == ShapeKind::object || field.shape.kind == ShapeKind::any) {
      // Fields inside bring their own defaults, which only work if the object itself is there.
      ASSERT_NE(value, nullptr) << path << ": give the default {}";
      EXPECT_TRUE(value->as_object().empty() || *value == field.initial) << path;
    } else if (field.initial.is_null()) {
      EXPECT_EQ(value, nullptr) << path << ": a default in the schema only";
    } else {
      ASSERT_NE(value, nullptr) << path << ": the default in C++ is " << field.initial;
      EXPECT_EQ(*value, field.initial) << path;
    }
  }

  Side side_;
};

const json::Value& definition_of(const std::vector<YamlFile>& files, const KindShape& kind) {
  const std::string path = "crds/" + std::string(kind.type.plural) + ".yaml";
  const auto file = std::find_if(files.begin(), files.end(), [&](const YamlFile& f) { return f.path == path; });
  EXPECT_NE(file, files.end()) << path << " is missing";
  EXPECT_EQ(file->documents.size(), 1u) << path;
  return file->documents.front();
}

TEST(Schema, FieldsAreThoseOfTheStructs) {
  const std::vector<YamlFile> files = yaml_files("crds");
  const std::vector<KindShape> kinds = kind_shapes();
  EXPECT_EQ(files.size(), kinds.size());
  for (const KindShape& kind : kinds) {
    const json::Object& properties = schema_of(definition_of(files, kind)).at("properties").as_object();
    const std::string name(kind.type.kind);
    Walker(Side::spec).compare(properties.at("spec").as_object(), kind.spec, name + ".spec");
    Walker(Side::status).compare(properties.at("status").as_object(), kind.status, name + ".status");
  }
}

TEST(Schema, NamesAndVersionsAreThoseOfTheTypes) {
  const std::vector<YamlFile> files = yaml_files("crds");
  std::set<std::string> short_names;
  for (const KindShape& kind : kind_shapes()) {
    const json::Value& definition = definition_of(files, kind);
    const std::string plural(kind.type.plural);
    EXPECT_EQ(text_at(definition, "metadata/name"), plural + "." + std::string(kind.type.group));
    EXPECT_EQ(text_at(definition, "spec/group"), kind.type.group);
    EXPECT_EQ(text_at(definition, "spec/scope"), kind.type.scope == kube::Scope::namespaced ? "Namespaced" : "Cluster");
    EXPECT_EQ(text_at(definition, "spec/names/kind"), kind.type.kind);
    EXPECT_EQ(text_at(definition, "spec/names/listKind"), std::string(kind.type.kind) + "List");
    EXPECT_EQ(text_at(definition, "spec/names/plural"), plural);
    EXPECT_EQ(at(definition, "spec/versions").as_array().size(), 1u);
    EXPECT_EQ(text_at(definition, "spec/versions/0/name"), kind.type.version);
    EXPECT_TRUE(at(definition, "spec/versions/0/subresources").as_object().contains("status")) << plural;
    EXPECT_FALSE(at(definition, "spec").as_object().contains("conversion")) << plural << ": no webhooks";
    EXPECT_GT(at(definition, "spec/versions/0/additionalPrinterColumns").as_array().size(), 1u) << plural;
    for (const json::Value& name : at(definition, "spec/names/shortNames").as_array()) {
      EXPECT_TRUE(short_names.insert(std::string(name.as_string())).second) << name << " is used twice";
    }
  }
}

TEST(Schema, FilesAreSmall) {
  for (const YamlFile& file : yaml_files("crds")) EXPECT_LT(file.text.size(), 100'000u) << file.path;
}

}  // namespace
}  // namespace penstock::ctl::api
