#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include "common/json/json.hpp"
#include "common/kube/model/known_types.hpp"
#include "operator/core/cache.hpp"
#include "operator/core/objects/merge.hpp"
#include "operator/core/objects/pod.hpp"
#include "operator/core/objects/service_children.hpp"
#include "tests/unit/operator/core/builders.hpp"

namespace penstock::ctl {
namespace {

using namespace testing;

constexpr std::string_view text = R"({
  "metadata": {"namespace": "ns", "name": "chat", "uid": "uid-chat", "generation": 1},
  "spec": {
    "model": {"name": "m", "uri": "pvc://weights/llama"},
    "roles": [{
      "name": "decode", "type": "Decode", "group": {"size": 2}, "drainSeconds": 100,
      "accelerators": {"count": 4},
      "network": {"rdma": {"resourceName": "rdma/ib", "count": 1}},
      "placement": {"pack": {"required": "Rack"}},
      "template": {"metadata": {"labels": {"team": "a"}}, "spec": {
        "containers": [{"name": "worker", "image": "w:1", "env": [{"name": "A", "value": "1"}],
                        "resources": {"requests": {"cpu": "2"}}}, {"name": "side", "image": "s:1"}],
        "tolerations": [{"operator": "Exists"}]}}}]}})";

class ObjectsTest : public ::testing::Test {
 protected:
  ObjectsTest() {
    service = api::parse_llm_service(json::parse(text).value()).value();
    const auto resolved = resolve(service);
    json::Object data = resolved.workers[0].data;
    data["image"] = "w:1";
    pinned = read_pinned(data, service.meta).value();
    one.meta.labels.set(label::revision, resolved.workers[0].revision);
    topology.levels = {{"Rack", "rack", false}, {"Host", "kubernetes.io/hostname", false}};
    input.group = &one.meta;
    input.pinned = &pinned;
    input.live = &service.spec.roles[0];
    input.epoch = 37;
    input.gang = Gang::kubernetes;
    input.gang_request = {gang_name(one.meta.name, 37), 2, &pinned.service.spec, &pinned.role, &topology, "Rack"};
    input.topology = &topology;
    input.capabilities = &capabilities;
  }
  json::Object pod(std::uint32_t rank) {
    input.rank = rank;
    return worker_pod(input).body;
  }
  static const json::Object& worker(const json::Object& pod) {
    return pod.at("spec").at("containers").as_array().at(0).as_object();
  }

  api::LLMService service;
  PinnedRole pinned;
  api::WorkerGroup one = group(2);
  Topology topology;
  Capabilities capabilities;
  PodInput input;
};

TEST_F(ObjectsTest, TheUsersTemplateIsMergedByNameAndItsOtherPartsStay) {
  const auto made = pod(0);
  const auto& containers = made.at("spec").at("containers").as_array();
  ASSERT_EQ(containers.size(), 2u);
  EXPECT_EQ(worker(made).at("image"), "w:1");
  EXPECT_EQ(worker(made).at("resources").at("limits").at("nvidia.com/gpu"), 4);
  EXPECT_EQ(worker(made).at("resources").at("requests").at("cpu"), "2");
  EXPECT_EQ(made.at("metadata").at("labels").at("team"), "a");
  EXPECT_TRUE(made.at("spec").as_object().contains("tolerations"));
}

TEST_F(ObjectsTest, WhatMustHoldHolds) {
  const auto made = pod(1);
  const auto& spec = made.at("spec").as_object();
  EXPECT_EQ(spec.at("automountServiceAccountToken"), false);
  EXPECT_EQ(spec.at("terminationGracePeriodSeconds"), 130);
  EXPECT_EQ(spec.at("restartPolicy"), "Never");
  EXPECT_EQ(spec.at("securityContext").at("runAsNonRoot"), true);
  EXPECT_EQ(worker(made).at("securityContext").at("readOnlyRootFilesystem"), true);
  EXPECT_EQ(worker(made).at("securityContext").at("capabilities").at("add").as_array().at(0), "IPC_LOCK");
  EXPECT_EQ(worker(made).at("resources").at("limits").at("rdma/ib"), 1);
  EXPECT_EQ(spec.at("schedulingGroup").at("podGroupName"), "chat-decode-abcde-11");
  EXPECT_EQ(spec.at("hostname"), "chat-decode-abcde-11-1");
  EXPECT_FALSE(made.at("metadata").at("labels").as_object().contains(label::leader));
}

TEST_F(ObjectsTest, PodsOfAGroupDifferByRankOnly) {
  std::string first = boost::json::serialize(pod(1)), second = boost::json::serialize(pod(2));
  for (std::string* one_text : {&first, &second}) {
    for (const std::string part :
         {"-11-1\"", "-11-2\"", "\"penstock.dev/rank\":\"1\"", "\"penstock.dev/rank\":\"2\""}) {
      for (auto at = one_text->find(part); at != std::string::npos; at = one_text->find(part))
        one_text->replace(at, part.size(), "#");
    }
  }
  EXPECT_EQ(first, second);
}

TEST_F(ObjectsTest, EachGangBackEndHasItsObjectAndItsMark) {
  const auto native = gang_object(Gang::kubernetes, input.gang_request).value();
  EXPECT_EQ(native.spec.at("schedulingPolicy").at("gang").at("minCount"), 2);
  EXPECT_EQ(native.spec.at("schedulingConstraints").at("topology").as_array().at(0).at("key"), "rack");
  const auto kai = gang_object(Gang::kai, input.gang_request).value();
  EXPECT_EQ(kai.spec.at("topologyConstraint").at("requiredTopologyLevel"), "rack");
  const auto volcano = gang_object(Gang::volcano, input.gang_request).value();
  EXPECT_EQ(volcano.spec.at("networkTopology").at("mode"), "hard");
  EXPECT_FALSE(gang_object(Gang::none, input.gang_request));
  input.gang = Gang::none;
  EXPECT_FALSE(pod(0).at("spec").as_object().contains("schedulingGates"));
  EXPECT_EQ(pod(1).at("spec").at("schedulingGates").as_array().at(0).at("name").as_string(), scheduling_gate);
}

TEST_F(ObjectsTest, ABackEndThatIsNotServedIsAProblemAndNotAGuess) {
  EXPECT_TRUE(choose_gang(api::SchedulingBackend::kai, capabilities).problem);
  EXPECT_EQ(choose_gang(api::SchedulingBackend::automatic, capabilities).gang, Gang::none);
  capabilities.pod_groups = true;
  EXPECT_EQ(choose_gang(api::SchedulingBackend::automatic, capabilities).gang, Gang::kubernetes);
}

TEST_F(ObjectsTest, ComputeDomainsOutliveTheirPodsByAFinalizer) {
  input.compute_domain = true;
  const auto children = group_children(input);
  ASSERT_EQ(children.front().type, kube::compute_domains);
  EXPECT_EQ(children.front().body.at("metadata").at("finalizers").as_array().at(0).as_string(), cleanup_finalizer);
  EXPECT_EQ(children.back().type, kube::pod_groups);
}

TEST_F(ObjectsTest, PlacementProblemsSayWhatToDo) {
  auto& pack = service.spec.roles[0].placement.pack;
  pack->required = "Row";
  EXPECT_EQ(check_placement(service.spec, topology, nullptr)->reason, "UnknownDomain");
  pack = api::PackSpec{"Rack", "Rack"};
  EXPECT_EQ(check_placement(service.spec, topology, nullptr)->reason, "PreferredNotNarrower");
  pack = api::PackSpec{"Rack", "Host"};
  EXPECT_FALSE(check_placement(service.spec, topology, nullptr));
  EXPECT_EQ(pack_ladder(service.spec.roles[0], topology), (std::vector<std::string>{"Host", "Rack"}));
}

TEST_F(ObjectsTest, AllGangsOfAServiceShareTheServiceThatNamesTheirPods) {
  const json::Object member = pod(1);
  const auto subdomain = kube::text_at(member, {"spec", "subdomain"});
  const auto resolved = resolve(service);
  ServiceInput all{&service, &resolved.router, "r:1", &capabilities, {{&service.spec.roles[0], 3}}};
  const auto named = [&] {
    int count = 0;
    for (const auto& child : service_children(all)) {
      const bool headless = kube::text_at(child.body, {"spec", "clusterIP"}) == "None";
      if (child.type != kube::services || !headless || child.key.name != subdomain) continue;
      ++count;
      const json::Object leaders{{label::service, "chat"}, {label::leader, "true"}};
      EXPECT_EQ(*kube::object_at(child.body, {"spec", "selector"}), leaders) << "of the others nobody asks";
    }
    return count;
  };
  EXPECT_EQ(named(), 0);
  all.has_gangs = true;
  EXPECT_EQ(named(), 1);
  std::string leader;
  for (const auto& entry : worker(member).at("env").as_array()) {
    if (entry.at("name").as_string() == "GANG_LEADER") leader = entry.at("value").as_string();
  }
  EXPECT_EQ(leader, pod_name(one.meta.name, 37, 0) + "." + gangs_name("chat"));
}

TEST_F(ObjectsTest, ServiceChildrenEndWithTheDeploymentAndAreStable) {
  const auto resolved = resolve(service);
  ServiceInput all{&service, &resolved.router, "r:1", &capabilities, {{&service.spec.roles[0], 3}}};
  const auto children = service_children(all);
  EXPECT_EQ(children.back().type, kube::deployments);
  const auto again = service_children(all);
  for (std::size_t i = 0; i < children.size(); ++i) EXPECT_EQ(desired_hash(children[i]), desired_hash(again[i]));
}

// One certificate for all pods, whose addresses it can't know: every side shows it, and checks for its name.
TEST_F(ObjectsTest, WorkerTlsIsMutualAndByName) {
  service.spec.security.worker_tls_secret_ref = api::NameRef{"tls"};
  pinned.service.spec.security.worker_tls_secret_ref = api::NameRef{"tls"};
  const auto made = pod(0);
  const std::string args = boost::json::serialize(worker(made).at("args"));
  for (const std::string side : {"control", "kv"}) {
    EXPECT_NE(args.find("--" + side + "-tls-cert-file=/etc/penstock/worker-tls/tls.crt"), std::string::npos);
    EXPECT_NE(args.find("--" + side + "-tls-key-file=/etc/penstock/worker-tls/tls.key"), std::string::npos);
    EXPECT_NE(args.find("--" + side + "-tls-ca-file=/etc/penstock/worker-tls/ca.crt"), std::string::npos);
  }
  EXPECT_NE(args.find("--kv-tls-peer-name=penstock-worker"), std::string::npos);
  const auto resolved = resolve(service);
  const ServiceInput all{&service, &resolved.router, "r:1", &capabilities, {{&service.spec.roles[0], 3}}};
  std::string options;
  for (const auto& child : service_children(all)) {
    if (child.body.contains("data")) options += boost::json::serialize(child.body.at("data"));
  }
  for (const char* part : {"tls.crt", "tls.key", "ca.crt", "penstock-worker"}) {
    EXPECT_NE(options.find(part), std::string::npos) << options;
  }
}

TEST_F(ObjectsTest, KeysAreEncodedAsSecretsWant) {
  const auto secret = keys_secret(service, "ab", "abc");
  EXPECT_EQ(secret.body.at("data").at("ticket.key"), "YWI=");
  EXPECT_EQ(secret.body.at("data").at("block-hash.key"), "YWJj");
}

TEST(Cache, CopiesStayWhereTheyAre) {
  api::ModelCache cache;
  cache.meta.namespace_ = "ns";
  cache.meta.name = "c";
  cache.spec.copies.count = 1;
  std::vector<Node> nodes(3);
  std::vector<const Node*> views;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].meta.name = "n" + std::to_string(i);
    nodes[i].ready = true;
    views.push_back(&nodes[i]);
  }
  api::NodeModelCache state;
  state.meta.name = state.spec.node_name = "n2";
  api::NodeCacheEntry entry;
  entry.cache = "ns/c";
  entry.state = api::CacheState::ready;
  state.status.entries.push_back(entry);
  EXPECT_EQ(nodes_for(cache, views, {&state}), (std::vector<std::string>{"n2"}));
  EXPECT_EQ(nodes_for(cache, views, {}), (std::vector<std::string>{"n0"}));
}

}  // namespace
}  // namespace penstock::ctl
