#include "tests/unit/operator/reconcilers/world.hpp"

#include <boost/json/serialize.hpp>

#include "operator/core/group.hpp"

namespace penstock::ctl {
namespace {

using testing::World;

class GroupReconcileTest : public ::testing::Test {
 protected:
  /// A service with one group, made and looked at once.
  void start(std::string_view role, std::string_view placement = "{}") {
    world.capabilities.pod_groups = true;
    world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},"placement":)" + std::string(placement) +
                  R"(,"roles":[)" + std::string(role) + "]}");
    world.look_at_service();
    ASSERT_FALSE(world.groups().empty());
    name = world.groups()[0]->meta.name;
  }
  Outcome look() { return world.look_at_group(name); }
  Outcome look_after(std::int64_t s) {
    world.now = kube::Timestamp::from_seconds(world.now.unix_s() + s);
    return look();
  }
  kube::Key pod(std::uint32_t rank) const { return {"ns", pod_name(name, 0, rank)}; }

  World world;
  std::string name;
};

constexpr std::string_view single = R"({"name":"main","type":"Unified","accelerators":{"count":0}})";
constexpr std::string_view gang = R"({"name":"main","type":"Unified","group":{"size":2},"parallelism":{"pipeline":2},
    "accelerators":{"count":1}})";
constexpr std::string_view paired = R"({"name":"p","type":"Prefill","accelerators":{"count":1}},
    {"name":"d","type":"Decode","accelerators":{"count":1}})";

TEST_F(GroupReconcileTest, AGangIsItsObjectAndItsPodsAndNothingElse) {
  start(gang);
  const Outcome outcome = look();
  EXPECT_EQ(World::all<kube::Apply>(outcome, kube::pod_groups).size(), 1u);
  EXPECT_EQ(World::all<kube::Create>(outcome, kube::pods).size(), 2u);
  EXPECT_EQ(outcome.writes.size(), 3u);
  EXPECT_TRUE(outcome.requeue_after) << "to tell of the start, should it take longer";
}

TEST_F(GroupReconcileTest, RestsLongerAmongManyGroups) {
  start(single);
  const auto rest = [&] { return look().rest; };
  EXPECT_EQ(rest(), std::chrono::milliseconds(200));
  for (int i = 0; i < 300; ++i) {
    api::WorkerGroup other;
    other.meta.namespace_ = "default";
    other.meta.name = "other-" + std::to_string(i);
    world.stores.groups.upsert(std::move(other));
  }
  EXPECT_GE(rest(), std::chrono::milliseconds(600));
  EXPECT_LE(rest(), std::chrono::seconds(1));
}

TEST_F(GroupReconcileTest, PodsThatAreThereAreNotMadeAgain) {
  start(single);
  look();
  EXPECT_TRUE(look().writes.empty());
}

TEST_F(GroupReconcileTest, ALeaderThatHandsKvOverGetsTheDomainsOfItsNode) {
  start(paired);
  world.node("n1", R"({"kubernetes.io/hostname":"n1"})");
  look();
  world.change_pod(pod(0), [](Pod& one) { one.node = "n1"; });
  EXPECT_EQ(World::all<kube::Patch>(look(), kube::pods).size(), 1u);
}

TEST_F(GroupReconcileTest, AFullQuotaIsAConditionAndAnEventAndGoesByItself) {
  start(single);
  world.refuse(403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: gpus, requested: 1, used: 8, limited: 8");
  const Outcome outcome = look();
  EXPECT_EQ(world.said_of_group("Scheduled", name), "False QuotaExceeded");
  EXPECT_EQ(World::events(outcome), (std::vector<std::string>{"QuotaExceeded"}));
  ASSERT_GE(outcome.writes.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<kube::EmitEvent>(outcome.writes[1])) << "before the pod, which is refused again";
  EXPECT_EQ(trouble_of(world.groups()[0]->status), "QuotaExceeded");
  EXPECT_TRUE(World::events(look()).empty()) << "told once, however often it is tried";
  world.failure.reset();
  look_after(10);
  EXPECT_NE(world.said_of_group("Scheduled", name), "False QuotaExceeded");
}

TEST_F(GroupReconcileTest, AnAdmissionRuleIsToldFromAQuota) {
  start(single);
  world.refuse(403, "Forbidden", "violates PodSecurity \"restricted:latest\"");
  look();
  EXPECT_EQ(world.said_of_group("Scheduled", name), "False Forbidden");
}

TEST_F(GroupReconcileTest, AnImageThatDoesNotPullIsOneConditionHoweverTheKubeletPutsIt) {
  start(single);
  look();
  const auto waits = [&](const std::string& reason, const std::string& message) {
    json::Object object = json::parse(R"({"metadata":{"namespace":"ns","name":")" + pod(0).name +
                                      R"(","uid":"u"},"spec":{"nodeName":"n1"},"status":{"phase":"Pending",
        "conditions":[{"type":"PodScheduled","status":"True"}],
        "containerStatuses":[{"name":"worker","image":"w:9","state":{"waiting":{"reason":")" +
                                      reason + R"(","message":")" + message + "\"}}}]}}")
                              .value()
                              .as_object();
    const Pod read = parse_pod(object).value();
    world.change_pod(pod(0), [&](Pod& one) {
      one.node = read.node;
      one.problem = read.problem;
      one.problem_detail = read.problem_detail;
    });
  };
  world.node("n1");
  waits("ErrImagePull", "rpc error: not found");
  const Outcome first = look_after(10);
  EXPECT_EQ(world.said_of_group("Ready", name), "False ImagePullBackOff");
  EXPECT_EQ(trouble_of(world.groups()[0]->status), "ImagePullBackOff");
  EXPECT_EQ(World::events(first), (std::vector<std::string>{"ImagePullBackOff"}));
  waits("ImagePullBackOff", "Back-off pulling image");
  const Outcome second = look_after(10);
  EXPECT_TRUE(World::all<kube::ApplyStatus>(second, api::worker_groups).empty());
  EXPECT_TRUE(World::events(second).empty());
}

TEST_F(GroupReconcileTest, AnUnschedulableGroupIsToldOnceAndAfterTheHold) {
  start(single);
  look();
  world.change_pod(pod(0), [](Pod& one) {
    one.problem = "Unschedulable";
    one.problem_detail = "0/3 nodes are available";
  });
  EXPECT_TRUE(World::events(look()).empty());
  EXPECT_EQ(World::events(look_after(10)), (std::vector<std::string>{"Unschedulable"}));
  EXPECT_EQ(world.said_of_group("Scheduled", name), "False Unschedulable");
  EXPECT_TRUE(World::events(look_after(10)).empty());
}

class TogetherTest : public GroupReconcileTest {
 protected:
  TogetherTest() {
    api::ClusterTopology topology;
    topology.meta.name = "default";
    topology.meta.uid = "t";
    topology.spec.levels = {{"Rack", "rack", false}};
    world.stores.topologies.upsert(std::move(topology));
    for (const char* node : {"a1", "a2", "b1"}) {
      world.node(node, std::string(R"({"rack":")") + node[0] + "\"}",
                 R"("allocatable":{"nvidia.com/gpu":"2","cpu":"8"})");
    }
    start(paired, R"({"coLocate":{"roles":["p","d"],"domain":"Rack","enforcement":"Required"}})");
    for (const auto* group : world.groups()) (group->spec.role == "p" ? first : second) = group->meta.name;
    world.look_at_group(first);
    world.change_pod({"ns", pod_name(first, 0, 0)}, [](Pod& one) {
      one.node = "a1";
      one.devices = {{"nvidia.com/gpu", 1}};
    });
  }
  /// Our own pods take so many devices of a node.
  void fill(const std::string& node, std::int64_t devices) {
    Pod pod;
    pod.meta.namespace_ = "ns";
    pod.meta.name = "other-" + node;
    pod.meta.uid = "uid-other-" + node;
    pod.node = node;
    pod.phase = PodPhase::running;
    pod.devices = {{"nvidia.com/gpu", devices}};
    world.stores.pods.upsert(std::move(pod));
  }
  std::string first, second;
};

TEST_F(TogetherTest, LaterGroupsArePinnedToWhereTheFirstIs) {
  const Outcome outcome = world.look_at_group(second);
  const auto made = World::all<kube::Create>(outcome, kube::pods);
  ASSERT_EQ(made.size(), 1u);
  const std::string text = boost::json::serialize(made[0]->body.at("spec").at("affinity"));
  EXPECT_NE(text.find(R"("key":"rack")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(["a"])"), std::string::npos) << text;
}

TEST_F(TogetherTest, WithoutRoomThereNothingIsMadeAndTheReasonIsSaid) {
  fill("a1", 1);
  fill("a2", 2);
  const Outcome outcome = world.look_at_group(second);
  EXPECT_TRUE(World::all<kube::Create>(outcome, kube::pods).empty());
  EXPECT_TRUE(outcome.requeue_after);
  world.now = kube::Timestamp::from_seconds(world.now.unix_s() + 10);
  const Outcome told = world.look_at_group(second);
  EXPECT_EQ(world.said_of_group("Scheduled", second), "False NoRoomTogether");
  EXPECT_EQ(World::events(told), (std::vector<std::string>{"NoRoomTogether"}));
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("TopologyValid"), "False BackendCannotCoLocate");
  world.stores.pods.erase({"ns", "other-a2"});
  EXPECT_EQ(World::all<kube::Create>(world.look_at_group(second), kube::pods).size(), 1u) << "there is room now";
}

TEST_F(TogetherTest, RoomElsewhereIsNoRoom) {
  fill("a1", 1);
  fill("a2", 2);
  EXPECT_TRUE(World::all<kube::Create>(world.look_at_group(second), kube::pods).empty()) << "b1 is another rack";
}

}  // namespace
}  // namespace penstock::ctl
