#include "tests/unit/operator/reconcilers/world.hpp"

#include "operator/core/cache.hpp"

namespace penstock::ctl {
namespace {

using testing::World;

constexpr std::string_view service = R"({"model":{"name":"m","cacheRef":{"name":"weights"}},
    "roles":[{"name":"main","type":"Unified","replicas":1,"accelerators":{"count":0},
              "lora":{"maxAdapters":4,"maxRank":16}}]})";

class SmallReconcilesTest : public ::testing::Test {
 protected:
  void cache(std::string_view rest = "") {
    const std::string text = R"({"metadata":{"namespace":"ns","name":"weights","uid":"c","generation":1},
        "spec":{"uri":"https://h/m","size":"10","storage":{"hostPath":{}})" +
                             std::string(rest) + "}}";
    world.stores.caches.upsert(api::parse_model_cache(json::parse(text).value()).value());
  }
  void held(const std::string& node, api::CacheState state, const std::string& message = "") {
    api::NodeModelCache one;
    one.meta.name = one.spec.node_name = node;
    one.meta.uid = "uid-nmc-" + node;
    one.spec.caches = {"ns/weights"};
    api::NodeCacheEntry entry;
    entry.cache = "ns/weights";
    entry.state = state;
    entry.message = message;
    entry.bytes = 7;
    one.status.entries.push_back(entry);
    world.stores.node_caches.upsert(std::move(one));
  }
  Outcome look_at_cache() { return world.keep(reconcile_cache({"ns", "weights"}, world.stores, world.context())); }
  Outcome look_at_node(const std::string& node) {
    return reconcile_node_cache({"", node}, world.stores, world.context());
  }
  std::string cache_says() const {
    return World::said(world.stores.caches.find({"ns", "weights"})->status.conditions, "Ready");
  }
  std::vector<std::string> wish(const Outcome& outcome) {
    std::vector<std::string> out;
    for (const auto* one : World::all<kube::Apply>(outcome, api::node_model_caches)) {
      const auto* caches = kube::array_at(one->body, {"spec", "caches"});
      for (std::size_t i = 0; caches != nullptr && i < caches->size(); ++i) out.emplace_back(caches->at(i).as_string());
    }
    return out;
  }
  World world;
};

TEST_F(SmallReconcilesTest, ACacheIsReadyWhenEveryWantedNodeHasIt) {
  cache();
  look_at_cache();
  EXPECT_EQ(cache_says(), "False NoNodeMatches");
  world.node("n1");
  world.node("n2");
  look_at_cache();
  EXPECT_EQ(cache_says(), "False Downloading");
  held("n1", api::CacheState::ready);
  held("n2", api::CacheState::failed, "the source answered 404");
  look_at_cache();
  EXPECT_EQ(cache_says(), "False DownloadFailed");
  held("n2", api::CacheState::ready);
  look_at_cache();
  EXPECT_EQ(cache_says(), "True Present");
  EXPECT_TRUE(look_at_cache().writes.empty());
}

TEST_F(SmallReconcilesTest, ANodeGetsAWishOnlyIfThereIsSomethingToWishFor) {
  world.node("n1");
  EXPECT_TRUE(look_at_node("n1").writes.empty());
  cache();
  EXPECT_EQ(wish(look_at_node("n1")), (std::vector<std::string>{"ns/weights"}));
  EXPECT_TRUE(look_at_node("gone").writes.empty());
}

TEST_F(SmallReconcilesTest, WhatAPodUsesStaysInTheWishWhenItsCacheIsGone) {
  world.node("n1");
  cache();
  held("n1", api::CacheState::ready);
  look_at_cache();
  world.service(service);
  world.look_at_service();
  ASSERT_EQ(world.groups().size(), 1u);
  const std::string group = world.groups()[0]->meta.name;
  world.look_at_group(group);
  world.change_pod({"ns", pod_name(group, 0, 0)}, [](Pod& pod) {
    pod.node = "n1";
    pod.phase = PodPhase::running;
  });
  world.stores.caches.erase({"ns", "weights"});
  EXPECT_TRUE(look_at_node("n1").writes.empty()) << "the wish is what it was";
  world.change_pod({"ns", pod_name(group, 0, 0)}, [](Pod& pod) { pod.phase = PodPhase::succeeded; });
  const Outcome outcome = look_at_node("n1");
  ASSERT_EQ(World::all<kube::Apply>(outcome, api::node_model_caches).size(), 1u);
  EXPECT_TRUE(wish(outcome).empty());
}

class AdapterTest : public SmallReconcilesTest {
 protected:
  void adapter(int rank = 8, const std::string& of = "chat") {
    const std::string text = R"({"metadata":{"namespace":"ns","name":"a","uid":"a"},"spec":{"serviceName":")" + of +
                             R"(","uri":"hf://a/b","rank":)" + std::to_string(rank) + R"(,"placement":"All"}})";
    world.stores.adapters.upsert(api::parse_model_adapter(json::parse(text).value()).value());
  }
  std::string says() {
    world.keep(reconcile_adapter({"ns", "a"}, world.stores, world.context()));
    return World::said(world.stores.adapters.find({"ns", "a"})->status.conditions, "Ready");
  }
};

TEST_F(AdapterTest, SaysByNameThatTheEngineCannot) {
  adapter();
  EXPECT_EQ(says(), "False ServiceNotFound");
  world.service(service);
  EXPECT_EQ(says(), "False EngineCannotLoadAdapters");
  EXPECT_NE(kube::find_condition(world.stores.adapters.find({"ns", "a"})->status.conditions, "Ready")
                ->message.find("penstock-worker"),
            std::string::npos);
  adapter(64);
  EXPECT_EQ(says(), "False NoCapableRole");
}

TEST_F(SmallReconcilesTest, AScalerFollowsItsGroupsAndNeverWritesItsOwnCount) {
  world.service(R"({"model":{"name":"m","uri":"file:///m"},"roles":[{"name":"main","type":"Unified","replicas":2,
      "accelerators":{"count":0},"scaling":{"mode":"External","min":0,"max":9}}]})");
  const Outcome first = world.look_at_service();
  const auto seeds = World::all<kube::Create>(first, api::role_scalers);
  ASSERT_EQ(seeds.size(), 1u);
  json::Object object = seeds[0]->body;
  object["metadata"].as_object()["uid"] = "s";
  object["metadata"].as_object()["generation"] = 1;
  api::RoleScaler scaler = api::parse_role_scaler(json::Value(object)).value();
  EXPECT_EQ(scaler.spec.replicas, 2);
  scaler.spec.replicas = 5;  // somebody scales
  world.stores.scalers.upsert(scaler);
  const Outcome after = world.look_at_service();
  EXPECT_EQ(world.groups().size(), 5u);
  EXPECT_TRUE(World::all<kube::Patch>(after, api::role_scalers).empty());
  EXPECT_TRUE(World::all<kube::Apply>(after, api::role_scalers).empty());
  world.keep(reconcile_scaler(scaler.meta.key(), world.stores, world.context()));
  EXPECT_EQ(world.stores.scalers.find(scaler.meta.key())->status.replicas, 5);
  EXPECT_EQ(World::said(world.stores.scalers.find(scaler.meta.key())->status.conditions, "Active"), "True Scaling");
}

TEST_F(SmallReconcilesTest, ATopologySaysWhichNodesLackALabel) {
  api::ClusterTopology topology;
  topology.meta.name = "default";
  topology.meta.uid = "t";
  topology.spec.levels = {{"Rack", "rack", false}};
  world.stores.topologies.upsert(topology);
  world.node("n1", R"({"rack":"a"})");
  world.node("n2");
  const Outcome outcome = reconcile_topology({"", "default"}, world.stores, world.context());
  const auto written = World::all<kube::ApplyStatus>(outcome, api::cluster_topologies);
  ASSERT_EQ(written.size(), 1u);
  const auto status = api::parse_cluster_topology(json::Value(written[0]->body)).value().status;
  ASSERT_EQ(status.levels.size(), 1u);
  EXPECT_EQ(status.levels[0].instances, 1);
  EXPECT_EQ(status.levels[0].nodes_missing_label, 1);
}

}  // namespace
}  // namespace penstock::ctl
