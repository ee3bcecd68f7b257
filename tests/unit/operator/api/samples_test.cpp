// deploy/samples is what users copy: every object parses, has no field that the schema would drop, and every role of
// each service is one that the operator can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "operator/api/cluster_topology.hpp"
#include "operator/api/llm_service.hpp"
#include "operator/api/model_adapter.hpp"
#include "operator/api/model_cache.hpp"
#include "operator/api/role_scaler.hpp"
#include "tests/unit/operator/api/files.hpp"

namespace penstock::ctl::api {
namespace {

template <class T>
std::string problem_of(const json::FieldResult<T>& result) {
  return result ? "" : result.error().path + ": " + result.error().reason;
}

std::string parse_problem(std::string_view kind, const json::Value& object) {
  if (kind == "LLMService") return problem_of(parse_llm_service(object));
  if (kind == "RoleScaler") return problem_of(parse_role_scaler(object));
  if (kind == "ModelCache") return problem_of(parse_model_cache(object));
  if (kind == "ModelAdapter") return problem_of(parse_model_adapter(object));
  if (kind == "ClusterTopology") return problem_of(parse_cluster_topology(object));
  return "no sample is expected of this kind";
}

std::map<std::string, json::Value> definitions() {
  std::map<std::string, json::Value> by_kind;
  for (YamlFile& file : yaml_files("crds")) {
    const std::string kind = text_at(file.documents[0], "spec/names/kind");
    by_kind.emplace(kind, std::move(file.documents[0]));
  }
  return by_kind;
}

void expect_known(const json::Value& value, const json::Object& schema, const std::string& path) {
  if (const json::Array* array = value.if_array()) {
    for (const json::Value& item : *array) expect_known(item, schema.at("items").as_object(), path + "[]");
    return;
  }
  const json::Object* object = value.if_object();
  const json::Value* properties = schema.if_contains("properties");
  if (object == nullptr || properties == nullptr) return;
  for (const auto& member : *object) {
    const std::string place = path + "." + std::string(member.key());
    const json::Value* property = properties->as_object().if_contains(member.key());
    EXPECT_NE(property, nullptr) << place << " is not in the schema";
    if (property != nullptr) expect_known(member.value(), property->as_object(), place);
  }
}

bool is_ours(const json::Value& object) {
  return text_at(object, "apiVersion") == "penstock.dev/v1alpha1";
}

TEST(Samples, ParseAndHaveOnlyKnownFields) {
  const auto schemas = definitions();
  std::map<std::string, int> seen;
  for (const YamlFile& file : yaml_files("deploy/samples")) {
    EXPECT_TRUE(file.text.starts_with("# ")) << file.path << ": say what it shows";
    for (const json::Value& object : file.documents) {
      if (!is_ours(object)) continue;
      const std::string kind = text_at(object, "kind");
      ++seen[kind];
      EXPECT_EQ(parse_problem(kind, object), "") << file.path;
      ASSERT_TRUE(schemas.contains(kind)) << file.path;
      json::Object known = schema_of(schemas.at(kind));
      known.at("properties").as_object().erase("metadata");
      json::Value body = object;
      body.as_object().erase("metadata");
      expect_known(body, known, file.path);
    }
  }
  for (const char* kind : {"LLMService", "RoleScaler", "ModelCache", "ModelAdapter", "ClusterTopology"}) {
    EXPECT_GT(seen[kind], 0) << "no sample has a " << kind;
  }
}

TEST(Samples, ReferToEachOtherByNamesThatExist) {
  for (const YamlFile& file : yaml_files("deploy/samples")) {
    std::map<std::string, LLMServiceSpec> services;
    for (const json::Value& object : file.documents) {
      if (!is_ours(object) || text_at(object, "kind") != "LLMService") continue;
      auto service = parse_llm_service(object);
      ASSERT_TRUE(service) << file.path;
      services.emplace(service->meta.name, service->spec);
    }
    for (const json::Value& object : file.documents) {
      if (!is_ours(object) || text_at(object, "kind") != "RoleScaler") continue;
      auto scaler = parse_role_scaler(object);
      ASSERT_TRUE(scaler) << file.path;
      ASSERT_TRUE(services.contains(scaler->spec.service_name)) << file.path;
      EXPECT_EQ(scaler->meta.name, role_scaler_name(scaler->spec.service_name, scaler->spec.role)) << file.path;
      const auto& roles = services.at(scaler->spec.service_name).roles;
      const auto role = std::find_if(roles.begin(), roles.end(),
                                     [&](const RoleSpec& candidate) { return candidate.name == scaler->spec.role; });
      ASSERT_NE(role, roles.end()) << file.path << ": no role " << scaler->spec.role;
      EXPECT_NE(role->scaling.mode, ScalingMode::fixed) << file.path << ": a RoleScaler of a fixed role";
    }
  }
}

}  // namespace
}  // namespace penstock::ctl::api
