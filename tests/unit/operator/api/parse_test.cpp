#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "operator/api/cluster_topology.hpp"
#include "operator/api/llm_service.hpp"
#include "operator/api/model_adapter.hpp"
#include "operator/api/model_cache.hpp"
#include "operator/api/names.hpp"
#include "operator/api/role_scaler.hpp"
#include "operator/api/worker_group.hpp"

namespace penstock::ctl::api {
namespace {

json::Value json_of(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

json::Value service_with(std::string_view spec) {
  return json_of(R"({"apiVersion":"penstock.dev/v1alpha1","kind":"LLMService",
    "metadata":{"name":"chat","namespace":"ai","uid":"u1","resourceVersion":"7","generation":3},"spec":)" +
                 std::string(spec) + "}");
}

std::string problem(const json::Value& object) {
  auto service = parse_llm_service(object);
  return service ? "" : service.error().path + ": " + service.error().reason;
}

TEST(ParseLlmService, AnAbsentFieldHasTheDefault) {
  auto service = parse_llm_service(
      service_with(R"({"model":{"name":"m","uri":"hf://a/b"},"roles":[{"name":"main","type":"Unified"}]})"));
  ASSERT_TRUE(service) << service.error().path;
  EXPECT_EQ(service->meta.name, "chat");
  EXPECT_EQ(service->meta.generation, 3);
  EXPECT_EQ(service->spec.model.mount.path, "/models");
  EXPECT_EQ(service->spec.placement.topology_ref.name, "default");
  EXPECT_EQ(service->spec.rollout.max_surge, (CountOrPercent{1, false}));
  EXPECT_FALSE(service->spec.slo.has_value());
  ASSERT_EQ(service->spec.roles.size(), 1u);
  const RoleSpec& role = service->spec.roles.front();
  EXPECT_EQ(role.type, RoleType::unified);
  EXPECT_EQ(role.replicas, 1);
  EXPECT_EQ(role.shared_memory.units(), std::int64_t{8} << 30);
  EXPECT_FALSE(role.group.restart.policy.has_value());
  EXPECT_FALSE(role.accelerators.count.has_value());
}

TEST(ParseLlmService, ReadsWhatIsThere) {
  auto service = parse_llm_service(service_with(R"({
    "model":{"name":"m","aliases":["n"],"cacheRef":{"name":"c"}},
    "roles":[
      {"name":"prefill","type":"Prefill","replicas":2,"group":{"size":2,"restart":{"policy":"Pod","inPlace":"Prefer"}},
       "accelerators":{"claims":[{"name":"gpu","deviceClassName":"gpu.nvidia.com","count":8,"scope":"Group"}]},
       "network":{"rdma":{"resourceName":"rdma/hca"}},"sharedMemory":"512Mi","settings":{"kv-pool":"2GiB"},
       "placement":{"pack":{"required":"Rack"},"spread":{"domain":"Zone","when":"DoNotSchedule"}},
       "template":{"spec":{"nodeSelector":{"a":"b"}}},
       "scaling":{"mode":"SLO","max":4,"maxStepUp":2}},
      {"name":"decode","type":"Decode"}],
    "scaling":{"gpuBudget":64,"ratio":{"numerator":"prefill","denominator":"decode","maxPercent":300}},
    "slo":{"ttftMs":500},"scheduling":{"backend":"KAI","queue":"q"},
    "rollout":{"maxUnavailable":"25%","strategy":"Recreate"},
    "routing":{"policy":"LeastLoad","service":{"type":"NodePort","port":80},"gateway":{"httpRoute":{"gatewayName":"g"}}},
    "security":{"apiKeysSecretRef":{"name":"keys"},"kvTransfer":"Off"}})"));
  ASSERT_TRUE(service) << service.error().path << service.error().reason;
  const LLMServiceSpec& spec = service->spec;
  EXPECT_EQ(spec.model.cache_ref->name, "c");
  const RoleSpec& role = spec.roles.at(0);
  EXPECT_EQ(role.group.restart.policy, RestartPolicy::pod);
  EXPECT_EQ(role.group.restart.in_place, InPlaceRestart::prefer);
  EXPECT_EQ(role.accelerators.claims.at(0).count, 8);
  EXPECT_EQ(role.accelerators.claims.at(0).scope, ClaimScope::group);
  EXPECT_EQ(role.network.rdma->count, 1);
  EXPECT_EQ(role.shared_memory.units(), 512 << 20);
  EXPECT_EQ(role.settings.at("kv-pool"), "2GiB");
  EXPECT_EQ(role.placement.pack->required, "Rack");
  EXPECT_EQ(role.placement.spread->when, WhenUnsatisfiable::do_not_schedule);
  EXPECT_TRUE(role.pod_template.contains("spec"));
  EXPECT_EQ(role.scaling.mode, ScalingMode::slo);
  EXPECT_EQ(role.scaling.max_step_up, (CountOrPercent{2, false}));
  EXPECT_EQ(spec.scaling.ratio->max_percent, 300);
  EXPECT_EQ(spec.rollout.max_unavailable, (CountOrPercent{25, true}));
  EXPECT_EQ(spec.rollout.strategy, RolloutStrategy::recreate);
  EXPECT_EQ(spec.scheduling.backend, SchedulingBackend::kai);
  EXPECT_EQ(spec.routing.service.port, 80);
  EXPECT_EQ(spec.routing.gateway.http_route->gateway_name, "g");
  EXPECT_EQ(spec.security.kv_transfer, KvTransfer::off);
}

TEST(ParseLlmService, PassesOverUnknownFieldsAndNulls) {
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m","uri":null,"later":1},"newer":{},
    "roles":[{"name":"a","type":"Unified","replicas":null,"group":{"x":[]}}]})")),
            "");
}

TEST(ParseLlmService, NamesThePathOfAWrongField) {
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m"},"roles":[{"name":"a","type":"Unified","replicas":"2"}]})")),
            "spec.roles[0].replicas: must be an integer, is a string");
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m"},"roles":[{"name":"a","type":"Both"}]})")),
            "spec.roles[0].type: 'Both' is not one of Router, Unified, Prefill, Decode, Encode");
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m"},"roles":[{"name":"a"}]})")).substr(0, 19),
            "spec.roles[0].type:");
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m"},"roles":{}})")).substr(0, 11), "spec.roles:");
  EXPECT_EQ(problem(service_with(R"({"model":[],"roles":[]})")).substr(0, 11), "spec.model:");
  EXPECT_EQ(problem(service_with(R"({"model":{"name":"m"},"roles":[],"rollout":{"maxSurge":"many"}})")),
            "spec.rollout.maxSurge: 'many' is neither a count nor a percentage, such as 25%");
  EXPECT_NE(problem(service_with(R"({"model":{"name":"m"},"roles":[],"rollout":{"maxSurge":3000000000}})")), "");
  EXPECT_EQ(problem(service_with(
                        R"({"model":{"name":"m"},"roles":[{"name":"a","type":"Unified","sharedMemory":"8 apples"}]})"))
                .substr(0, 26),
            "spec.roles[0].sharedMemory");
  EXPECT_EQ(
      problem(service_with(R"({"model":{"name":"m"},"roles":[{"name":"a","type":"Unified","settings":{"k":1}}]})")),
      "spec.roles[0].settings.k: must be a string, is an integer");
  EXPECT_NE(problem(json_of("[]")), "");
  EXPECT_NE(problem(json_of(R"({"spec":{"model":{"name":"m"},"roles":[]}})")).find("metadata"), std::string::npos);
}

TEST(ParseLlmService, StatusSurvivesWritingAndReading) {
  LLMServiceStatus status;
  status.observed_generation = 4;
  kube::set_condition(status.conditions, {"Ready", kube::ConditionStatus::yes, "AllReady", "3 of 3", 4, {}},
                      kube::Timestamp::from_seconds(1'800'000'000));
  status.current_revision = "abc";
  status.roles.push_back({.name = "decode", .desired = 3, .ready = 3, .gpus = 24});
  status.ready_groups = "3/3";
  json::Value object = service_with(R"({"model":{"name":"m"},"roles":[]})");
  object.as_object()["status"] = to_json(status);
  auto service = parse_llm_service(object);
  ASSERT_TRUE(service) << service.error().path;
  EXPECT_EQ(service->status.conditions, status.conditions);
  EXPECT_EQ(service->status.roles.at(0).gpus, 24);
  EXPECT_EQ(to_json(service->status), to_json(status));
  // Counts are shown also when they are zero; empty texts and lists are left out.
  EXPECT_EQ(to_json(status).at("roles").at(0).at("draining"), 0);
  EXPECT_FALSE(to_json(status).contains("endpoint"));
}

TEST(ParseRole, SurvivesWritingAndReading) {
  RoleSpec role;
  role.name = "decode";
  role.type = RoleType::decode;
  role.group.size = 4;
  role.placement.pack = PackSpec{"Rack", "NVLink"};
  role.placement.spread = SpreadSpec{.domain = "Zone"};
  role.scaling.max_step_up = {3, false};
  role.pod_template = json_of(R"({"spec":{"containers":[{"name":"worker"}]}})").as_object();
  const json::Object written = to_json(role);
  auto again = parse_role(written);
  ASSERT_TRUE(again) << again.error().path;
  EXPECT_EQ(to_json(*again), written);
  EXPECT_EQ(again->group.size, 4);
  EXPECT_EQ(again->placement.pack->preferred, "NVLink");
}

TEST(ParseRole, WritesWhatIsRequiredEvenIfItIsEmpty) {
  RoleSpec role;
  role.accelerators.claims.emplace_back();
  role.network.multus_networks = {""};
  const json::Object written = to_json(role);
  EXPECT_EQ(written.at("name"), "");
  auto again = parse_role(written);
  ASSERT_TRUE(again) << again.error().path << again.error().reason;
  EXPECT_EQ(to_json(*again), written);
}

TEST(ParseOthers, ReadTheirSpecsAndKeepTheirFacts) {
  auto group = parse_worker_group(json_of(R"({"metadata":{"name":"g","namespace":"ai"},
    "spec":{"serviceName":"chat","role":"decode","revision":"r1","size":2},
    "status":{"epoch":3,"restarts":1,"windowStart":"2026-05-04T03:02:01Z"}})"));
  ASSERT_TRUE(group) << group.error().path;
  EXPECT_EQ(group->status.epoch, 3);
  EXPECT_EQ(boost::json::serialize(to_json(group->status).at("windowStart")), "\"2026-05-04T03:02:01Z\"");
  EXPECT_FALSE(group->status.next_restart_time.has_value());

  auto cache = parse_model_cache(json_of(R"({"metadata":{"name":"c"},"spec":{"uri":"hf://a/b","size":"140Gi",
    "copies":3,"storage":{"hostPath":{}}}})"));
  ASSERT_TRUE(cache) << cache.error().path;
  EXPECT_EQ(cache->spec.copies.count, 3);
  EXPECT_EQ(cache->spec.storage.host_path->path, "/var/lib/penstock/models");
  EXPECT_TRUE(to_json(cache->spec).at("storage").as_object().contains("hostPath"));

  auto adapter = parse_model_adapter(
      json_of(R"({"metadata":{"name":"l"},"spec":{"serviceName":"chat","uri":"hf://a/b","placement":"All"}})"));
  ASSERT_TRUE(adapter) << adapter.error().path;
  EXPECT_FALSE(adapter->spec.placement.count.has_value());
  EXPECT_EQ(adapter->spec.rank, 16);

  auto topology = parse_cluster_topology(json_of(
      R"({"metadata":{"name":"default"},"spec":{"levels":[{"domain":"Rack","nodeLabel":"example.com/rack"}]}})"));
  ASSERT_TRUE(topology) << topology.error().path;
  EXPECT_EQ(topology->spec.levels.at(0).node_label, "example.com/rack");

  auto scaler = parse_role_scaler(
      json_of(R"({"metadata":{"name":"chat.decode"},"spec":{"serviceName":"chat","role":"decode","replicas":0}})"));
  ASSERT_TRUE(scaler) << scaler.error().path;
  EXPECT_EQ(scaler->spec.replicas, 0);

  auto node = parse_node_model_cache(json_of(R"({"metadata":{"name":"n1"},"spec":{"nodeName":"n1","caches":["ai/c"]},
    "status":{"entries":[{"cache":"ai/c","state":"Downloading","bytesDone":5}]}})"));
  ASSERT_TRUE(node) << node.error().path;
  EXPECT_EQ(node->status.entries.at(0).state, CacheState::downloading);
}

TEST(CountOrPercent, RoundsAsAsked) {
  const CountOrPercent quarter{25, true}, two{2, false};
  EXPECT_EQ(quarter.rounded_up(5), 2);
  EXPECT_EQ(quarter.rounded_down(5), 1);
  EXPECT_EQ(quarter.rounded_up(8), 2);
  EXPECT_EQ(quarter.rounded_down(0), 0);
  EXPECT_EQ(two.rounded_up(100), 2);
  EXPECT_EQ(two.rounded_down(1), 2);
}

TEST(Names, EveryEnumeratorHasOne) {
  EXPECT_EQ(to_string(RoleType::encode), "Encode");
  EXPECT_EQ(to_string(ScalingMode::slo), "SLO");
  EXPECT_EQ(to_string(SchedulingBackend::none), "None");
  EXPECT_EQ(to_string(RoutingPolicy::kv_aware), "KVAware");
  EXPECT_EQ(to_string(RouterServiceType::cluster_ip), "ClusterIP");
  EXPECT_EQ(to_string(CacheState::evicting), "Evicting");
}

}  // namespace
}  // namespace penstock::ctl::api
