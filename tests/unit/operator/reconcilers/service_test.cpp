#include "tests/unit/operator/reconcilers/world.hpp"

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "operator/core/service_troubles.hpp"

namespace penstock::ctl {
namespace {

using testing::World;

constexpr std::string_view plain = R"({"model":{"name":"m","uri":"file:///m.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}}]})";
constexpr std::string_view edited = R"({"model":{"name":"m","uri":"file:///other.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}}]})";

constexpr std::string_view with_router = R"({"model":{"name":"m","uri":"file:///m.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}},
             {"name":"front","type":"Router","template":{"spec":{"priorityClassName":"high"}}}]})";

class ServiceReconcileTest : public ::testing::Test {
 protected:
  World world;
};

TEST_F(ServiceReconcileTest, NothingForWhatIsNotThereOrIsGoing) {
  EXPECT_TRUE(world.look_at_service().writes.empty());
  world.service(plain);
  api::LLMService going = *world.stores.services.find({"ns", "chat"});
  going.meta.deleted = world.now;
  world.stores.services.upsert(std::move(going));
  EXPECT_TRUE(world.look_at_service().writes.empty());
}

TEST_F(ServiceReconcileTest, TriesAPodBeforeAnythingOfTheRevisionExists) {
  world.service(plain);
  const Outcome outcome = world.look_at_service();
  ASSERT_EQ(World::tried(outcome).size(), 1u);
  std::size_t tried = 0, revision = 0, group = 0;
  for (std::size_t i = 0; i < outcome.writes.size(); ++i) {
    const auto* create = std::get_if<kube::Create>(&outcome.writes[i]);
    if (create == nullptr) continue;
    const auto role = kube::text_at(create->body, {"metadata", "labels", label::role}).value_or("");
    if (create->type == kube::pods && role == "main") tried = i;
    if (create->type == kube::controller_revisions && role == "main") revision = i;
    if (create->type == api::worker_groups && group == 0) group = i;
  }
  EXPECT_LT(tried, revision);
  EXPECT_LT(revision, group);
  EXPECT_EQ(world.groups().size(), 2u);
  EXPECT_TRUE(World::tried(world.look_at_service()).empty()) << "a revision is tried once";
}

TEST_F(ServiceReconcileTest, ARefusedTemplateIsSaidOnceAndMakesNothing) {
  world.service(plain);
  world.refuse(422, "Invalid", "Pod is invalid: spec.containers[0].image: Required value", true);
  const Outcome outcome = world.keep(reconcile_service({"ns", "chat"}, world.stores, world.context()));
  EXPECT_EQ(world.said_of_service("TemplateValid"), "False TemplateRejected");
  EXPECT_NE(
      kube::find_condition(world.service_status().conditions, "TemplateValid")->message.find("containers[0].image"),
      std::string::npos);
  EXPECT_TRUE(World::all<kube::Create>(outcome, api::worker_groups).empty());
  EXPECT_EQ(World::tried(outcome).size(), 1u) << "it is asked again, with the queue's back-off";
  EXPECT_EQ(World::events(outcome), (std::vector<std::string>{"TemplateRejected"}));
  const auto said = std::find_if(outcome.writes.begin(), outcome.writes.end(), [](const kube::Write& write) {
    return std::holds_alternative<kube::EmitEvent>(write);
  });
  const auto tried = std::find_if(outcome.writes.begin(), outcome.writes.end(),
                                  [](const kube::Write& write) { return std::holds_alternative<kube::Create>(write); });
  EXPECT_LT(said, tried) << "the trial is refused again and ends the look";
  EXPECT_TRUE(is_troubled(world.service_status(), "TemplateValid"));
  const Outcome again = world.look_at_service();
  EXPECT_TRUE(World::all<kube::ApplyStatus>(again, api::llm_services).empty());
  EXPECT_TRUE(World::events(again).empty());
}

class PlacementTroubleTest : public ServiceReconcileTest {
 protected:
  PlacementTroubleTest() {
    world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},"roles":[{"name":"main","type":"Unified",
        "accelerators":{"count":0},"placement":{"pack":{"required":"Rack"}}}]})");
  }
  void topology(std::int32_t instances, std::int32_t missing) {
    api::ClusterTopology one;
    one.meta.name = "default";
    one.meta.uid = "t";
    one.spec.levels = {{"Rack", "rack", false}};
    one.status.levels = {{"Rack", instances, missing}};
    world.stores.topologies.upsert(std::move(one));
  }
  /// A condition, an event once, a count while it lasts, nothing made, nothing tried over and over.
  void expect_said(const std::string& reason) {
    const Outcome first = world.look_at_service();
    EXPECT_EQ(world.said_of_service("TopologyValid"), "False " + reason);
    EXPECT_EQ(World::events(first), (std::vector<std::string>{reason})) << "from the first, once";
    EXPECT_TRUE(is_troubled(world.service_status(), "TopologyValid"));
    EXPECT_TRUE(world.groups().empty());
    const Outcome again = world.look_at_service();
    EXPECT_TRUE(World::events(again).empty());
    EXPECT_TRUE(World::all<kube::ApplyStatus>(again, api::llm_services).empty());
    EXPECT_FALSE(again.requeue_after);
  }
};

TEST_F(PlacementTroubleTest, AnUnknownDomainIsSaidUntilTheTopologyHasIt) {
  expect_said("UnknownDomain");
  topology(2, 0);
  EXPECT_EQ(World::events(world.look_at_service()), (std::vector<std::string>{"Valid"}));
  EXPECT_FALSE(is_troubled(world.service_status(), "TopologyValid"));
  EXPECT_EQ(world.groups().size(), 1u);
}

TEST_F(PlacementTroubleTest, NodesWithoutTheLabelAreSaid) {
  topology(0, 3);
  expect_said("NodesLackLabel");
}

TEST_F(ServiceReconcileTest, ARefusedTemplateLeavesTheOldRevisionServingAndReplacesWhatItLoses) {
  world.service(plain);
  world.look_at_service();
  const std::string old_hash = world.groups()[0]->spec.role_hash;
  for (const auto* group : world.groups()) world.set_ready(group->meta.name);
  world.service(edited);
  world.refuse(422, "Invalid", "no", true);
  const Outcome outcome = world.look_at_service();
  EXPECT_TRUE(World::all<kube::Patch>(outcome, api::worker_groups).empty()) << "nothing drains";
  EXPECT_TRUE(World::all<kube::Create>(outcome, api::worker_groups).empty());
  world.stores.groups.erase(world.groups()[0]->meta.key());
  const Outcome after_loss = world.look_at_service();
  const auto made = World::all<kube::Create>(after_loss, api::worker_groups);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(kube::text_at(made[0]->body, {"spec", "roleHash"}), old_hash);
}

TEST_F(ServiceReconcileTest, TheRoutersTemplateIsTriedBeforeAnythingIsMadeOfIt) {
  world.service(with_router);
  const Outcome outcome = world.look_at_service();
  ASSERT_EQ(World::tried(outcome, "front").size(), 1u);
  const auto index_of = [&](auto is) {
    const auto at = std::find_if(outcome.writes.begin(), outcome.writes.end(), is);
    return std::distance(outcome.writes.begin(), at);
  };
  const auto is_try_of = [](const kube::ResourceType& type) {
    return [&type](const kube::Write& write) {
      const auto* create = std::get_if<kube::Create>(&write);
      return create != nullptr && create->type == type && create->dry_run == kube::DryRun::yes;
    };
  };
  const auto made = index_of([](const kube::Write& write) { return std::holds_alternative<kube::Apply>(write); });
  ASSERT_LT(static_cast<std::size_t>(made), outcome.writes.size());
  EXPECT_LT(index_of(is_try_of(kube::deployments)), made);
  EXPECT_LT(index_of(is_try_of(kube::pods)), made);
  const json::Object& pod = World::tried(outcome, "front")[0]->body;
  EXPECT_EQ(kube::text_at(pod, {"spec", "priorityClassName"}), "high") << "with the user's template";
  EXPECT_FALSE(pod.at("spec").as_object().contains("serviceAccountName")) << "which isn't there yet";
  EXPECT_TRUE(World::tried(world.look_at_service(), "front").empty()) << "a revision is tried once";
}

TEST_F(ServiceReconcileTest, ARefusedRouterTemplateLeavesTheRouterAsItIs) {
  world.service(plain);
  world.look_at_service();
  world.service(with_router);
  world.refuse(422, "Invalid", "Deployment.apps is invalid: spec.template.spec.priorityClassName", true);
  const Outcome outcome = world.keep(reconcile_service({"ns", "chat"}, world.stores, world.context()));
  EXPECT_EQ(world.said_of_service("TemplateValid"), "False TemplateRejected");
  EXPECT_TRUE(World::all<kube::Apply>(outcome, kube::deployments).empty());
  EXPECT_TRUE(World::all<kube::Apply>(outcome, kube::config_maps).empty());
  EXPECT_TRUE(World::all<kube::Delete>(outcome, kube::config_maps).empty());
  EXPECT_EQ(World::tried(outcome, "front").size(), 1u) << "it is asked again, with the queue's back-off";
  world.failure.reset();
  EXPECT_EQ(World::all<kube::Apply>(world.look_at_service(), kube::deployments).size(), 1u);
  EXPECT_EQ(world.said_of_service("TemplateValid"), "True Valid");
}

TEST_F(ServiceReconcileTest, FormatsOfCallsAndThoughtsReachTheRouter) {
  world.service(plain);
  const auto options = [](const Outcome& outcome) {
    const auto maps = World::all<kube::Apply>(outcome, kube::config_maps);
    return maps.empty() ? std::string() : std::string(*kube::text_at(maps[0]->body, {"data", "router.yaml"}));
  };
  EXPECT_EQ(options(world.look_at_service()).find("-format"), std::string::npos) << "the chat template shows it";
  const auto mounted = [](const Outcome& outcome) {
    const auto deployments = World::all<kube::Apply>(outcome, kube::deployments);
    return deployments.empty() ? std::string() : boost::json::serialize(deployments[0]->body.at("spec").at("template"));
  };
  const std::string before = mounted(world.look_at_service());
  world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}}],
    "routing":{"toolFormat":"Llama3JSON","reasoningFormat":"None"}})");
  const Outcome outcome = world.look_at_service();
  EXPECT_NE(options(outcome).find(R"("tool-format":["llama3_json"])"), std::string::npos) << options(outcome);
  EXPECT_NE(options(outcome).find(R"("reasoning-format":["none"])"), std::string::npos) << options(outcome);
  EXPECT_NE(mounted(outcome), before) << "options are read at the start, so the pods are new";
  EXPECT_TRUE(World::all<kube::Create>(outcome, api::worker_groups).empty()) << "and workers go on";
}

TEST_F(ServiceReconcileTest, AFailureOfAnotherWriteIsNoVerdictOnTheTemplate) {
  world.service(plain);
  world.refuse(403, "Forbidden", "networkpolicies is forbidden");
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("TemplateValid"), "True Valid");
  EXPECT_EQ(world.said_of_service("Degraded"), "True Forbidden");
}

TEST_F(ServiceReconcileTest, ThatTheOperatorMayMakeNoPodsIsNotTheTemplatesFault) {
  world.service(plain);
  world.refuse(403, "Forbidden", "pods is forbidden: User \"x\" cannot create resource \"pods\"", true);
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("TemplateValid"), "True Valid");
  EXPECT_EQ(world.said_of_service("Degraded"), "True Forbidden");
}

TEST_F(ServiceReconcileTest, AServerThatIsAwayIsNoVerdictEither) {
  world.service(plain);
  world.refuse(503, "ServiceUnavailable", "away", true);
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("TemplateValid"), "True Valid");
  EXPECT_EQ(world.groups().size(), 2u);
}

TEST_F(ServiceReconcileTest, OneHeadlessServiceForAllGangsAndNoneWithoutThem) {
  world.service(plain);
  const auto named = [](const Outcome& outcome) {
    std::size_t count = 0;
    for (const auto* one : World::all<kube::Apply>(outcome, kube::services)) count += one->key.name == "chat-gangs";
    return count;
  };
  EXPECT_EQ(named(world.look_at_service()), 0u);
  world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},"roles":[{"name":"main","type":"Unified","replicas":2,
      "group":{"size":2},"parallelism":{"pipeline":2},"accelerators":{"count":1}}]})");
  EXPECT_EQ(named(world.look_at_service()), 1u);
}

TEST_F(ServiceReconcileTest, WeightsThatNobodyFetchesMakeNoGroups) {
  world.service(R"({"model":{"name":"m","uri":"hf://a/b"},"roles":[{"name":"main","type":"Unified"}]})");
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("ModelCached"), "False NeedsModelCache");
  EXPECT_TRUE(world.groups().empty());
}

TEST_F(ServiceReconcileTest, TheMoreGroupsTheLongerTheirEventsWait) {
  world.service(plain);
  EXPECT_EQ(world.look_at_service().rest, Duration(std::chrono::seconds(1)));
  world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},
      "roles":[{"name":"main","type":"Unified","replicas":60,"accelerators":{"count":0}}]})");
  world.look_at_service();
  EXPECT_EQ(world.look_at_service().rest, Duration(std::chrono::seconds(3)));
  world.service(R"({"model":{"name":"m","uri":"file:///m.gguf"},
      "roles":[{"name":"main","type":"Unified","replicas":600,"accelerators":{"count":0}}]})");
  world.look_at_service();
  EXPECT_EQ(world.look_at_service().rest, Duration(std::chrono::seconds(5)));
}

TEST_F(ServiceReconcileTest, ACertificateIsComplainedAboutBeforeAndAfterItsEnd) {
  world.service(plain);
  const auto left = [&](std::int64_t seconds) { world.certificate_end_s = world.now.unix_s() + seconds; };
  left(30 * 24 * 3600);
  const Outcome calm = world.look_at_service();
  EXPECT_EQ(world.said_of_service("Degraded"), "False Working");
  ASSERT_TRUE(calm.requeue_after);
  EXPECT_LE(*calm.requeue_after, Duration(std::chrono::seconds(23 * 24 * 3600 + 1))) << "when it begins to matter";
  world.look_at_service();  // with the groups that the first look made
  left(3600);
  EXPECT_EQ(World::events(world.look_at_service()), (std::vector<std::string>{"CertificateExpires"}));
  EXPECT_EQ(world.said_of_service("Degraded"), "True CertificateExpires");
  EXPECT_TRUE(is_troubled(world.service_status(), "Degraded"));
  world.now = kube::Timestamp::from_seconds(world.now.unix_s() + 3601);
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("Degraded"), "True CertificateExpired");
  const Outcome again = world.look_at_service();
  EXPECT_TRUE(World::events(again).empty());
  EXPECT_TRUE(World::all<kube::ApplyStatus>(again, api::llm_services).empty());
  left(90 * 24 * 3600);
  world.look_at_service();
  EXPECT_EQ(world.said_of_service("Degraded"), "False Working");
}

TEST_F(ServiceReconcileTest, ASurgeThatFitsNowhereIsSaid) {
  world.service(plain);
  world.look_at_service();
  for (const auto* group : world.groups()) world.set_ready(group->meta.name);
  world.service(edited);
  world.look_at_service();
  ASSERT_EQ(world.groups().size(), 3u) << "the surge";
  for (const auto* group : world.groups()) {
    if (!kube::is_true(group->status.conditions, "Ready")) world.set_unschedulable(group->meta.name);
  }
  const Outcome outcome = world.look_at_service();
  EXPECT_EQ(world.said_of_service("Progressing"), "Unknown SurgeUnschedulable");
  EXPECT_EQ(World::events(outcome), (std::vector<std::string>{"SurgeUnschedulable"}));
  EXPECT_TRUE(is_troubled(world.service_status(), "Progressing"));
  EXPECT_TRUE(World::events(world.look_at_service()).empty()) << "once";
}

}  // namespace
}  // namespace penstock::ctl
