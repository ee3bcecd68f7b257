#include "tests/unit/operator/reconcilers/world.hpp"

namespace penstock::ctl {
namespace {

using testing::World;

constexpr std::string_view plain = R"({"model":{"name":"m","uri":"file:///m.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}}]})";
constexpr std::string_view edited = R"({"model":{"name":"m","uri":"file:///other.gguf"},
    "roles":[{"name":"main","type":"Unified","replicas":2,"accelerators":{"count":0}}]})";

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
    if (create->type == kube::pods) tried = i;
    if (create->type == kube::controller_revisions && revision == 0) revision = i;
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
  EXPECT_NE(kube::find_condition(world.stores.services.find({"ns", "chat"})->status.conditions, "TemplateValid")
                ->message.find("containers[0].image"),
            std::string::npos);
  EXPECT_TRUE(World::all<kube::Create>(outcome, api::worker_groups).empty());
  EXPECT_EQ(World::tried(outcome).size(), 1u) << "it is asked again, with the queue's back-off";
  const Outcome again = world.look_at_service();
  EXPECT_TRUE(World::all<kube::ApplyStatus>(again, api::llm_services).empty());
  EXPECT_TRUE(World::events(again).empty());
}

TEST_F(ServiceReconcileTest, ARefusedTemplateLeavesTheOldRevisionServingAndReplacesWhatItLoses) {
  world.service(plain);
  world.look_at_service();
  const std::string old_hash = world.groups()[0]->spec.role_hash;
  for (const auto* group : world.groups()) {  // ready
    api::WorkerGroup ready = *group;
    kube::Condition condition;
    condition.type = "Ready";
    condition.status = kube::ConditionStatus::yes;
    condition.reason = "MembersReady";
    kube::set_condition(ready.status.conditions, condition, world.now);
    world.stores.groups.upsert(std::move(ready));
  }
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
  for (const auto* group : world.groups()) {
    api::WorkerGroup one = *group;
    kube::Condition condition;
    condition.type = "Ready";
    condition.status = kube::ConditionStatus::yes;
    condition.reason = "MembersReady";
    kube::set_condition(one.status.conditions, condition, world.now);
    world.stores.groups.upsert(std::move(one));
  }
  world.service(edited);
  world.look_at_service();
  ASSERT_EQ(world.groups().size(), 3u) << "the surge";
  for (const auto* group : world.groups()) {
    if (kube::is_true(group->status.conditions, "Ready")) continue;
    api::WorkerGroup one = *group;
    kube::Condition condition;
    condition.type = "Scheduled";
    condition.status = kube::ConditionStatus::no;
    condition.reason = "Unschedulable";
    kube::set_condition(one.status.conditions, condition, world.now);
    world.stores.groups.upsert(std::move(one));
  }
  const Outcome outcome = world.look_at_service();
  EXPECT_EQ(world.said_of_service("Progressing"), "Unknown SurgeUnschedulable");
  EXPECT_EQ(World::events(outcome), (std::vector<std::string>{"SurgeUnschedulable"}));
  EXPECT_TRUE(World::events(world.look_at_service()).empty()) << "once";
}

}  // namespace
}  // namespace penstock::ctl
