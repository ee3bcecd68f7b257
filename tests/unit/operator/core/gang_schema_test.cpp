// Objects of other projects, against the fields that their definitions have: a field that a definition lacks is pruned
// without a word. Taken from the published definitions of KAI (scheduling.run.ai/v2alpha2), Volcano
// (scheduling.volcano.sh/v1beta1), the NVIDIA DRA driver (resource.nvidia.com/v1beta1), and the PodGroup of Kubernetes
// 1.37 (scheduling.k8s.io/v1beta1).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/json/json.hpp"
#include "common/kube/model/known_types.hpp"
#include "operator/core/objects/pod.hpp"
#include "tests/unit/operator/core/builders.hpp"

namespace penstock::ctl {
namespace {

using namespace testing;

using Fields = std::map<std::string, std::string>;  // path of a leaf, and "integer", "text", "one of a|b", "empty"

void leaves(const json::Value& value, const std::string& path, std::map<std::string, json::Value>& out) {
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    for (const auto& [name, member] : *object) {
      leaves(member, path.empty() ? std::string(name) : path + "." + std::string(name), out);
    }
  } else if (const auto* list = value.if_array()) {
    for (const auto& item : *list) leaves(item, path + "[]", out);
  } else {
    out[path] = value;
  }
}

bool fits(const json::Value& value, const std::string& kind) {
  if (kind == "integer") return value.is_int64() || value.is_uint64();
  if (kind == "text") return value.is_string() && !value.get_string().empty();
  if (kind == "empty") return value.is_object() && value.get_object().empty();
  const std::string text = value.is_string() ? std::string(value.get_string()) : std::string("(no text)");
  return ("|" + kind + "|").find("|" + text + "|") != std::string::npos;
}

class GangSchemaTest : public ::testing::Test {
 protected:
  explicit GangSchemaTest() {
    constexpr std::string_view text = R"({"metadata":{"namespace":"ns","name":"chat","uid":"u"},"spec":{
        "model":{"name":"m","uri":"file:///m"},"scheduling":{"queue":"team-a","priorityClassName":"high"},
        "roles":[{"name":"decode","type":"Decode","group":{"size":2},"accelerators":{"count":4},
                  "placement":{"pack":{"required":"Block","preferred":"Rack"}}}]}})";
    service = api::parse_llm_service(json::parse(text).value()).value();
    const auto resolved = resolve(service);
    json::Object data = resolved.workers[0].data;
    data["image"] = "w:1";
    pinned = read_pinned(data, service.meta).value();
    topology.levels = {{"Block", "block", false}, {"Rack", "rack", false}, {"Host", "kubernetes.io/hostname", false}};
    input.group = &one.meta;
    input.pinned = &pinned;
    input.live = &service.spec.roles[0];
    input.gang_request = {gang_name(one.meta.name, 0), 2, &pinned.service.spec, &pinned.role, &topology, "Block"};
    input.topology = &topology;
    input.capabilities = &capabilities;
    input.compute_domain = true;
  }
  void check(Gang gang, const kube::ResourceType& type, const Fields& known, const std::set<std::string>& needed) {
    input.gang = gang;
    bool found = false;
    for (const auto& child : group_children(input)) {
      if (child.type != type) continue;
      found = true;
      EXPECT_EQ(kube::text_at(child.body, {"apiVersion"}), type.api_version());
      std::map<std::string, json::Value> have;
      leaves(child.body.at("spec"), "", have);
      for (const auto& [path, value] : have) {
        const auto at = known.find(path);
        ASSERT_NE(at, known.end()) << path << " is no field of " << type.api_version();
        EXPECT_TRUE(fits(value, at->second)) << path;
      }
      for (const auto& path : needed) EXPECT_TRUE(have.contains(path)) << path;
    }
    EXPECT_TRUE(found);
  }

  api::LLMService service;
  PinnedRole pinned;
  api::WorkerGroup one = group(2);
  Topology topology;
  Capabilities capabilities;
  PodInput input;
};

TEST_F(GangSchemaTest, Kubernetes) {
  check(Gang::kubernetes, kube::pod_groups,
        {{"schedulingPolicy.gang.minCount", "integer"},
         {"schedulingPolicy.basic", "empty"},
         {"schedulingConstraints.topology[].key", "text"},
         {"disruptionMode.all", "empty"},
         {"disruptionMode.single", "empty"},
         {"priorityClassName", "text"}},
        {"schedulingPolicy.gang.minCount", "schedulingConstraints.topology[].key", "disruptionMode.all"});
}

TEST_F(GangSchemaTest, Kai) {
  check(Gang::kai, kube::kai_pod_groups,
        {{"minMember", "integer"},
         {"queue", "text"},
         {"priorityClassName", "text"},
         {"preemptibility", "preemptible|non-preemptible"},
         {"topologyConstraint.topology", "text"},
         {"topologyConstraint.requiredTopologyLevel", "text"},
         {"topologyConstraint.preferredTopologyLevel", "text"}},
        {"minMember", "queue", "topologyConstraint.topology", "topologyConstraint.requiredTopologyLevel",
         "topologyConstraint.preferredTopologyLevel"});
  const json::Object pod = worker_pod(input).body;
  EXPECT_EQ(kube::text_at(pod, {"metadata", "annotations", "pod-group-name"}), gang_name(one.meta.name, 0));
  EXPECT_EQ(kube::text_at(pod, {"metadata", "annotations", "kai.scheduler/skip-podgrouper"}), "true");
  EXPECT_EQ(kube::text_at(pod, {"spec", "schedulerName"}), "kai-scheduler");
}

TEST_F(GangSchemaTest, Volcano) {
  check(Gang::volcano, kube::volcano_pod_groups,
        {{"minMember", "integer"},
         {"queue", "text"},
         {"priorityClassName", "text"},
         {"networkTopology.mode", "hard|soft"},
         {"networkTopology.highestTierAllowed", "integer"}},
        {"minMember", "networkTopology.mode", "networkTopology.highestTierAllowed"});
  const json::Object pod = worker_pod(input).body;
  EXPECT_EQ(kube::text_at(pod, {"metadata", "annotations", "scheduling.k8s.io/group-name"}),
            gang_name(one.meta.name, 0));
  EXPECT_EQ(kube::text_at(pod, {"spec", "schedulerName"}), "volcano");
}

TEST_F(GangSchemaTest, ComputeDomain) {
  check(Gang::kubernetes, kube::compute_domains,
        {{"numNodes", "integer"},
         {"channel.resourceClaimTemplate.name", "text"},
         {"channel.allocationMode", "Single|All"}},
        {"numNodes", "channel.resourceClaimTemplate.name"});
}

}  // namespace
}  // namespace penstock::ctl
