#include "operator/core/service.hpp"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <list>

#include "common/json/json.hpp"
#include "operator/core/service_status.hpp"
#include "tests/unit/operator/core/builders.hpp"

namespace penstock::ctl {
namespace {

using namespace testing;

constexpr std::string_view text = R"({
  "metadata": {"namespace": "ns", "name": "chat", "uid": "uid-chat", "generation": 4},
  "spec": {
    "model": {"name": "m", "uri": "file:///models/m.gguf"},
    "roles": [
      {"name": "prefill", "type": "Prefill", "replicas": 2, "template": {"spec": {"containers": [{"name": "worker", "image": "w:1"}]}}},
      {"name": "decode", "type": "Decode", "replicas": 3, "group": {"size": 2}}]}})";

api::LLMService service() {
  return api::parse_llm_service(json::parse(text).value()).value();
}

TEST(Resolve, CountsBudgetsAndDrainAreNoChange) {
  const auto before = resolve(service());
  auto changed = service();
  changed.spec.roles[0].replicas = 9;
  changed.spec.roles[1].drain_seconds = 5;
  changed.spec.roles[1].group.restart.budget = 99;
  changed.spec.roles[1].startup_seconds = 5;
  changed.spec.rollout.max_surge = {3, false};
  changed.spec.scaling.gpu_budget = 8;
  EXPECT_EQ(resolve(changed).revision, before.revision);
}

TEST(Resolve, WithoutAKeyPrefillAndDecodeChangeTogether) {
  const auto before = resolve(service());
  auto changed = service();
  changed.spec.roles[1].settings["kv-pool"] = "2GiB";
  const auto after = resolve(changed);
  EXPECT_NE(after.workers[1].hash, before.workers[1].hash);
  EXPECT_NE(after.workers[0].hash, before.workers[0].hash);
  EXPECT_EQ(after.workers[0].pairing, after.workers[1].pairing);
  EXPECT_EQ(after.router.hash, before.router.hash);
}

TEST(Resolve, WithAKeyOnlyTheChangedRoleRolls) {
  auto first = service();
  first.spec.rollout.compatibility_key = "2026-11";
  auto second = first;
  second.spec.roles[1].settings["kv-pool"] = "2GiB";
  EXPECT_EQ(resolve(first).workers[0].hash, resolve(second).workers[0].hash);
  EXPECT_NE(resolve(first).workers[1].hash, resolve(second).workers[1].hash);
}

TEST(Resolve, ARevisionGivesBackItsRole) {
  const auto resolved = resolve(service());
  const auto pinned = read_pinned(resolved.workers[1].data, service().meta).value();
  EXPECT_EQ(pinned.role.name, "decode");
  EXPECT_EQ(pinned.role.type, api::RoleType::decode);
  EXPECT_EQ(pinned.role.group.size, 2);
  EXPECT_EQ(pinned.pairing, resolved.workers[1].pairing);
  EXPECT_EQ(pinned.service.spec.model.uri, "file:///models/m.gguf");
}

class ServiceTest : public ::testing::Test {
 protected:
  void add(const std::string& role, bool is_new, std::int64_t created, const std::string& pairing,
           bool is_ready = true) {
    auto& one = groups.emplace_back(group(1, "chat-" + role + "-" + std::to_string(groups.size())));
    one.spec.role = role;
    one.spec.role_hash = is_new ? resolved.workers[role == "prefill" ? 0 : 1].hash : "h1:old";
    one.meta.created = at(created);
    one.meta.labels.set(label::pairing, pairing);
    kube::Condition condition{"Ready", is_ready ? kube::ConditionStatus::yes : kube::ConditionStatus::no, "R", "", 1,
                              {}};
    kube::set_condition(one.status.conditions, condition, at(created));
    condition.type = "Scheduled";
    kube::set_condition(one.status.conditions, condition, at(created));
  }
  ServicePlan plan(std::int64_t s = 1000) {
    ServiceView view{&wanted, &resolved, {2, 3}, {}, at(s)};
    for (const auto& one : groups) view.groups.push_back(&one);
    return plan_service(view);
  }

  api::LLMService wanted = service();
  ResolvedService resolved = resolve(wanted);
  std::list<api::WorkerGroup> groups;
};

TEST_F(ServiceTest, MakesWhatIsMissing) {
  const ServicePlan first = plan();
  EXPECT_EQ(first.roles[0].step.create_new, 2u);
  EXPECT_EQ(first.roles[1].step.create_new, 3u);
}

TEST_F(ServiceTest, OfThreeGenerationsTheHalfPairGoesFirstThenTheOldest) {
  add("prefill", false, 1, "a");
  add("decode", false, 1, "a");
  add("decode", false, 2, "b");  // its prefill side is gone
  add("decode", true, 3, "c");
  const auto roles = plan().roles;
  const auto victims = pick_victims(roles, 1);
  ASSERT_EQ(victims.size(), 2u);
  EXPECT_EQ(victims[0]->meta.labels.get(label::pairing), "b");
}

TEST_F(ServiceTest, GroupsOfARoleThatIsGoneDrain) {
  add("prefill", true, 1, "a");
  add("prefill", true, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", true, 1, "a");
  groups.emplace_back(groups.front());
  groups.back().meta.name = "chat-encode-x";
  groups.back().spec.role = "encode";
  const ServicePlan now = plan();
  ASSERT_EQ(now.roles.size(), 3u);
  EXPECT_EQ(now.roles[2].drain.size(), 1u);
}

TEST_F(ServiceTest, MinReadySecondsHoldTheNextStep) {
  wanted.spec.rollout.min_ready_seconds = 100;
  for (int i = 0; i < 2; ++i) add("prefill", false, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", false, 1, "a");
  add("prefill", true, 950, "b");
  add("decode", true, 950, "b");
  EXPECT_EQ(plan(1000).roles[1].drain.size(), 0u);
  EXPECT_EQ(plan(1000).look_again, Duration(std::chrono::seconds(50)));
  EXPECT_EQ(plan(1050).roles[1].drain.size(), 1u);
}

TEST_F(ServiceTest, ASurgeThatDoesNotFitGoesOnByUnavailability) {
  wanted.spec.rollout.surge_fallback_seconds = 60;
  for (int i = 0; i < 2; ++i) add("prefill", false, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", false, 1, "a");
  add("decode", true, 100, "b", false);
  auto& scheduled = groups.back().status.conditions;
  kube::set_condition(scheduled, {"Scheduled", kube::ConditionStatus::no, "Unschedulable", "", 1, {}}, at(100));
  EXPECT_EQ(plan(150).roles[1].drain.size(), 0u);
  EXPECT_EQ(plan(150).look_again, Duration(std::chrono::seconds(10))) << "nothing else would bring it back";
  EXPECT_TRUE(plan(161).surge_fallback);
  EXPECT_EQ(plan(161).roles[1].drain.size(), 1u);
}

TEST_F(ServiceTest, WhatHoldsPodsUpIsSaidByTheService) {
  for (int i = 0; i < 2; ++i) add("prefill", true, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", true, 1, "a", i != 1);
  const auto ready_message = [&](std::string reason) {
    for (auto& group : groups) {
      if (kube::is_true(group.status.conditions, "Ready")) continue;
      kube::set_condition(group.status.conditions, {"Scheduled", kube::ConditionStatus::yes, "Bound", "", 1, {}},
                          at(1));
      kube::set_condition(group.status.conditions, {"Ready", kube::ConditionStatus::no, reason, "pod p: no w:2", 1, {}},
                          at(1));
    }
    const ServicePlan now = plan(100);
    StatusInput input;
    input.service = &wanted;
    input.resolved = &resolved;
    input.plan = &now;
    input.now = at(100);
    return kube::find_condition(service_status(input).status.conditions, "Ready")->message;
  };
  EXPECT_NE(ready_message("ErrImagePull").find("ErrImagePull, pod p: no w:2"), std::string::npos);
  EXPECT_EQ(ready_message("Loading"), "4/5 groups are ready") << "a state on the way is no trouble";
}

TEST_F(ServiceTest, TheProgressDeadlineBringsItBack) {
  wanted.spec.rollout.progress_deadline_seconds = 600;
  for (int i = 0; i < 2; ++i) add("prefill", true, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", true, 1, "a", i != 1);
  const auto result = [&](std::int64_t s) {
    const ServicePlan now = plan(s);
    StatusInput input;
    input.service = &wanted;
    input.resolved = &resolved;
    input.plan = &now;
    input.now = at(s);
    return service_status(input);
  };
  EXPECT_EQ(result(101).look_again, Duration(std::chrono::seconds(501)));
  const auto late = result(602);
  EXPECT_FALSE(late.look_again);
  EXPECT_EQ(kube::find_condition(late.status.conditions, "Progressing")->reason, "ProgressDeadlineExceeded");
}

TEST_F(ServiceTest, ARefusalAfterAWaitIsAnEventOnce) {
  for (int i = 0; i < 2; ++i) add("prefill", true, 1, "a");
  for (int i = 0; i < 3; ++i) add("decode", true, 1, "a", i != 1);
  const auto notices = [&](std::string reason) {
    for (auto& group : groups) {
      if (kube::is_true(group.status.conditions, "Ready")) continue;
      kube::set_condition(group.status.conditions, {"Scheduled", kube::ConditionStatus::no, reason, "", 1, {}}, at(1));
    }
    const ServicePlan now = plan(100);
    StatusInput input;
    input.service = &wanted;
    input.resolved = &resolved;
    input.plan = &now;
    input.now = at(100);
    const auto result = service_status(input);
    wanted.status = result.status;
    return result.notices.size();
  };
  EXPECT_EQ(notices("Creating"), 0u) << "the first status is no transition";
  EXPECT_EQ(notices("Waiting"), 0u);
  EXPECT_EQ(notices("Forbidden"), 1u);
  EXPECT_EQ(notices("Forbidden"), 0u);
}

TEST_F(ServiceTest, StatusHasEveryConditionAndStaysUnderFourKilobytesAtTenThousandGroups) {
  for (int i = 0; i < 10'000; ++i) add(i % 2 == 0 ? "prefill" : "decode", i % 3 == 0, i, "a", i % 5 != 0);
  const ServicePlan now = plan(20'000);
  StatusInput input;
  input.service = &wanted;
  input.resolved = &resolved;
  input.plan = &now;
  input.topology = Problem{"UnknownDomain", std::string(2000, 'x')};
  input.refusal = std::string(3000, 'y');
  input.refusal_reason = "Forbidden";
  input.endpoint = "http://chat.ns.svc:8000/v1";
  input.now = at(20'000);
  const auto result = service_status(input);
  EXPECT_LE(boost::json::serialize(api::to_json(result.status)).size(), 4096u);
  for (const char* type : {"Ready", "Available", "Progressing", "Scheduled", "TopologyValid", "TemplateValid",
                           "ModelCached", "ScalingActive", "Degraded"}) {
    const auto* condition = kube::find_condition(result.status.conditions, type);
    ASSERT_NE(condition, nullptr) << type;
    EXPECT_FALSE(condition->reason.empty()) << type;
    EXPECT_EQ(condition->observed_generation, 4) << type;
  }
  ASSERT_EQ(result.notices.size(), 2u) << "what is wrong from the first is told, that nothing is ready yet isn't";
  EXPECT_EQ(result.notices[0].reason, "UnknownDomain");
  EXPECT_EQ(result.notices[1].reason, "Forbidden");
}

}  // namespace
}  // namespace penstock::ctl
