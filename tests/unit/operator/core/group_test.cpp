#include "operator/core/group.hpp"

#include <gtest/gtest.h>

#include <list>

#include "tests/unit/operator/core/builders.hpp"

namespace penstock::ctl {
namespace {

using namespace testing;

class GroupTest : public ::testing::Test {
 protected:
  explicit GroupTest(std::int32_t size = 2) : one(group(size)) { role.group.size = size; }

  GroupPlan look(std::int64_t s) {
    GroupInput input;
    input.group = &one;
    input.role = &role;
    for (const Pod& pod : pods) input.pods.push_back(&pod);
    input.on_lost_nodes = on_lost_nodes;
    input.ladder = ladder;
    input.fleet = fleet;
    input.now = at(s);
    GroupPlan plan = plan_group(input);
    one.status = plan.status;
    return plan;
  }
  void all_ready() {
    for (Pod& pod : pods) pod = ready(pod);
  }

  api::WorkerGroup one;
  api::RoleSpec role;
  std::list<Pod> pods;
  std::vector<const Pod*> on_lost_nodes;
  std::vector<std::string> ladder{""};
  std::size_t fleet = 1;
};

TEST_F(GroupTest, MakesAllMissingPodsOfTheEpoch) {
  EXPECT_EQ(look(0).create, (std::vector<std::uint32_t>{0, 1}));
  pods.push_back(pod(one, 0, 0));
  EXPECT_EQ(look(1).create, (std::vector<std::uint32_t>{1}));
}

TEST_F(GroupTest, SetsAllConditionsInTheFirstStatus) {
  look(0);
  for (const char* type : {"Scheduled", "Ready", "Draining", "Failed"}) {
    const auto* condition = kube::find_condition(one.status.conditions, type);
    ASSERT_NE(condition, nullptr) << type;
    EXPECT_FALSE(condition->reason.empty());
    EXPECT_EQ(condition->observed_generation, 1);
  }
}

TEST_F(GroupTest, IsReadyOnlyWithEveryMember) {
  pods = {ready(pod(one, 0, 0)), bound(pod(one, 0, 1))};
  EXPECT_EQ(look(1).state, GroupState::loading);
  EXPECT_FALSE(kube::is_true(one.status.conditions, "Ready"));
  all_ready();
  EXPECT_EQ(look(2).state, GroupState::ready);
  EXPECT_TRUE(kube::is_true(one.status.conditions, "Ready"));
}

TEST_F(GroupTest, ALostMemberBeginsTheNextEpochForAll) {
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  look(1);
  pods.back().phase = PodPhase::failed;
  const GroupPlan plan = look(2);
  EXPECT_EQ(plan.state, GroupState::restarting);
  EXPECT_EQ(plan.remove.size(), 2u);
  EXPECT_TRUE(plan.create.empty());
  EXPECT_EQ(one.status.epoch, 1);
  EXPECT_EQ(one.status.restarts, 1);
  EXPECT_EQ(one.status.next_restart_time, at(12));
}

TEST_F(GroupTest, ADeletedMemberOfACompleteGangIsLostToo) {
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  look(1);
  pods.pop_back();
  EXPECT_EQ(look(2).state, GroupState::restarting);
}

TEST_F(GroupTest, TheNextEpochWaitsForItsTimeAndNotForPodsOnADeadNode) {
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  look(1);
  on_lost_nodes = {&pods.front()};
  look(2);
  on_lost_nodes.clear();
  pods.front().meta.deleted = at(2);  // hangs: its kubelet is away
  pods.pop_back();
  EXPECT_TRUE(look(5).create.empty());
  const GroupPlan plan = look(13);
  EXPECT_EQ(plan.create, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(plan.epoch, 1u);
}

TEST_F(GroupTest, ALostStatusWriteCannotReuseAnEpoch) {
  pods = {pod(one, 7, 0)};
  EXPECT_EQ(look(1).epoch, 7u);
}

TEST_F(GroupTest, BackOffDoublesAndTheBudgetEndsInAConditionNotInSilence) {
  role.group.restart.budget = 3;
  std::int64_t now = 0, last_delay = 0;
  for (int i = 0; i < 5; ++i) {
    pods = {ready(pod(one, static_cast<std::uint64_t>(one.status.epoch), 0)),
            ready(pod(one, static_cast<std::uint64_t>(one.status.epoch), 1))};
    pods.back().phase = PodPhase::failed;
    look(now);
    last_delay = one.status.next_restart_time->unix_s() - at(now).unix_s();
    now += last_delay + 1;
  }
  EXPECT_EQ(last_delay, 600);
  EXPECT_TRUE(kube::is_true(one.status.conditions, "Failed"));
  EXPECT_EQ(kube::find_condition(one.status.conditions, "Failed")->reason, "RestartBudgetExhausted");
  pods = {ready(pod(one, static_cast<std::uint64_t>(one.status.epoch), 0)),
          ready(pod(one, static_cast<std::uint64_t>(one.status.epoch), 1))};
  look(now);
  EXPECT_FALSE(kube::is_true(one.status.conditions, "Failed"));
}

TEST_F(GroupTest, UnreadyAfterReadyIsNotLost) {
  role.startup_seconds = 60;
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  look(1);
  pods.back().ready = false;
  EXPECT_EQ(look(100'000).state, GroupState::loading);
  EXPECT_EQ(look(200'000).state, GroupState::loading);
}

TEST_F(GroupTest, AStartThatTakesTooLongIsARestart) {
  role.startup_seconds = 60;
  pods = {bound(pod(one, 0, 0)), bound(pod(one, 0, 1))};
  EXPECT_EQ(look(59).state, GroupState::loading);
  EXPECT_EQ(look(60).state, GroupState::restarting);
}

TEST_F(GroupTest, SaysWhyPodsDoNotGetOn) {
  pods = {bound(pod(one, 0, 0)), bound(pod(one, 0, 1))};
  pods.back().problem = "ImagePullBackOff";
  look(1);
  EXPECT_EQ(kube::find_condition(one.status.conditions, "Ready")->reason, "ImagePullBackOff");
}

TEST_F(GroupTest, ClimbsOneRungAnEpochAndNeverBack) {
  ladder = {"Rack", "Zone", ""};
  pods = {pod(one, 0, 0), pod(one, 0, 1)};
  EXPECT_EQ(look(1).pack, "Rack");
  const GroupPlan up = look(escalate_after_s);
  EXPECT_EQ(up.pack, "Zone");
  EXPECT_EQ(up.epoch, 1u);
  EXPECT_EQ(one.status.restarts, 0);
  EXPECT_EQ(up.remove.size(), 2u);
  pods.clear();
  EXPECT_EQ(look(escalate_after_s + 1).pack, "Zone");
}

TEST_F(GroupTest, DrainingRemovesPodsAndThenItself) {
  one.meta.annotations.set(annotation::drain_deadline, std::to_string(at(100).unix_s()));
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  const GroupPlan plan = look(1);
  EXPECT_EQ(plan.remove.size(), 2u);
  EXPECT_FALSE(plan.delete_group);
  EXPECT_TRUE(plan.create.empty());
  pods.clear();
  EXPECT_TRUE(look(2).delete_group);
}

TEST_F(GroupTest, DrainingEndsEvenIfAPodHangs) {
  one.meta.annotations.set(annotation::drain_deadline, std::to_string(at(100).unix_s()));
  pods = {ready(pod(one, 0, 0))};
  pods.front().meta.deleted = at(1);
  EXPECT_FALSE(look(120).delete_group);
  EXPECT_TRUE(look(161).delete_group);
}

TEST_F(GroupTest, EventsAreForTransitionsThatAreNoPartOfAStart) {
  look(0);
  pods = {ready(pod(one, 0, 0)), ready(pod(one, 0, 1))};
  EXPECT_TRUE(look(1).notices.empty());
  EXPECT_TRUE(look(2).notices.empty());
  pods.back().ready = false;
  EXPECT_EQ(look(3).notices.size(), 1u);
  pods.back().ready = true;
  EXPECT_EQ(look(4).notices.size(), 1u);
  EXPECT_TRUE(look(5).notices.empty());
}

TEST_F(GroupTest, KeepsTheStepsOfAStartToItselfForAWhile) {
  EXPECT_TRUE(look(0).hold_status);
  one.status = {};  // it wasn't written
  pods = {bound(pod(one, 0, 0)), bound(pod(one, 0, 1))};
  EXPECT_EQ(look(2).hold_status, std::chrono::seconds(progress_hold_s - 2));
  one.status = {};
  EXPECT_FALSE(look(progress_hold_s).hold_status);  // written
  pods.front() = ready(pods.front());
  EXPECT_TRUE(look(progress_hold_s + 1).hold_status);
  all_ready();
  EXPECT_FALSE(look(progress_hold_s + 2).hold_status) << "readiness is what everyone waits for";
}

TEST_F(GroupTest, WhatStandsInTheWayOfAStartIsToldSooner) {
  pods = {pod(one, 0, 0), pod(one, 0, 1)};
  pods.front().problem = "Unschedulable";
  EXPECT_TRUE(look(trouble_hold_s - 1).hold_status) << "it may pass";
  one.status = {};  // it wasn't written
  EXPECT_FALSE(look(trouble_hold_s).hold_status);
}

TEST_F(GroupTest, TheHoldBeginsWithThePods) {
  const GroupPlan late = look(1000);
  EXPECT_EQ(late.create.size(), 2u);
  EXPECT_EQ(late.hold_status, std::chrono::seconds(progress_hold_s)) << "it has waited its turn";
}

TEST_F(GroupTest, TheHoldGrowsWithTheFleetUpToAMinute) {
  EXPECT_EQ(progress_hold(1), progress_hold_s);
  fleet = 500;
  EXPECT_EQ(look(0).hold_status, std::chrono::seconds(progress_hold_s + 20));
  fleet = 100'000;
  one.status = {};
  EXPECT_EQ(look(0).hold_status, std::chrono::seconds(60));
}

TEST_F(GroupTest, NeverHoldsBackWhatIsStored) {
  pods = {bound(pod(one, 0, 0)), bound(pod(one, 0, 1))};
  pods.back().phase = PodPhase::failed;
  const GroupPlan plan = look(1);
  EXPECT_EQ(plan.state, GroupState::restarting);
  EXPECT_FALSE(plan.hold_status);
}

TEST_F(GroupTest, AMemberThatGoesBeforeTheStatusSaysBoundIsLost) {
  pods = {bound(pod(one, 0, 0))};
  EXPECT_EQ(look(1).state, GroupState::restarting);
}

class SinglePodTest : public GroupTest {
 protected:
  SinglePodTest() : GroupTest(1) {}
};

TEST_F(SinglePodTest, ALostPodIsMadeAgainUnderANewName) {
  pods = {ready(pod(one, 0, 0))};
  look(1);
  pods.front().meta.deleted = at(2);
  look(2);
  const GroupPlan plan = look(20);
  EXPECT_EQ(plan.create, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(plan.epoch, 1u);
}

TEST_F(SinglePodTest, PolicyNoneLeavesItSo) {
  role.group.restart.policy = api::RestartPolicy::none;
  pods = {ready(pod(one, 0, 0))};
  look(1);
  pods.front().phase = PodPhase::failed;
  const GroupPlan plan = look(2);
  EXPECT_EQ(plan.state, GroupState::failed);
  EXPECT_TRUE(plan.create.empty() && plan.remove.empty());
  EXPECT_TRUE(kube::is_true(one.status.conditions, "Failed"));
}

}  // namespace
}  // namespace penstock::ctl
