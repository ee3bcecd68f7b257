#include "operator/core/planner.hpp"

#include <gtest/gtest.h>

namespace penstock::ctl {
namespace {

using namespace std::chrono_literals;

RoleSignals role_with(std::uint32_t groups, GroupLoad load) {
  RoleSignals role;
  role.role = "decode";
  role.wanted = role.ready = groups;
  role.max = 64;
  role.step_up_max = 64;
  role.latency_slo_ms = 50;
  role.groups.assign(groups, load);
  return role;
}

RoleDecision plan(const RoleSignals& role, PlannerLimits limits = {}) {
  return plan_slo(std::span(&role, 1), limits)[0];
}

constexpr GroupLoad slow{80, 0.7, 4}, fast{10, 0.1, 0}, fair{45, 0.5, 1};

TEST(Planner, AddsOneWhenEveryGroupIsOverTheObjective) {
  EXPECT_EQ(plan(role_with(3, slow)).groups, 4u);
  RoleSignals mixed = role_with(3, slow);
  mixed.groups[1] = fair;
  EXPECT_EQ(plan(mixed).groups, 3u);
}

TEST(Planner, PendingGroupsCountSoThatABurstDoesNotDoubleTheFleet) {
  RoleSignals role = role_with(2, slow);
  std::uint32_t most = 0;
  for (int turn = 0; turn < 10; ++turn) {  // nothing gets ready for a long time
    const RoleDecision decision = plan(role);
    role.starting += decision.groups - role.wanted;
    role.wanted = decision.groups;
    most = std::max(most, role.wanted);
  }
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(plan(role).reason, PlanReason::starting);
}

TEST(Planner, TakesOneAwayOnlyIfTheRestCanCarryTheLoad) {
  EXPECT_EQ(plan(role_with(3, fast)).groups, 2u);
  EXPECT_EQ(plan(role_with(2, {10, 0.5, 0})).groups, 2u);  // KV share would be 1.0
  EXPECT_EQ(plan(role_with(3, {10, 0.1, 4})).groups, 3u);  // queue would be 6
  EXPECT_EQ(plan(role_with(1, fast)).groups, 1u);
}

TEST(Planner, ThroughputTargetFollowsDemandAtOnce) {
  RoleSignals role = role_with(2, fair);
  role.demand = 9000;
  role.rate_at_slo = 1000;
  EXPECT_EQ(plan(role).groups, 9u);
  EXPECT_EQ(plan(role).reason, PlanReason::throughput);
  role.step_up_max = 3;
  EXPECT_EQ(plan(role).groups, 5u);
}

TEST(Planner, ScalesFromZeroOnDemandAlone) {
  RoleSignals role = role_with(0, fair);
  role.min = 0;
  role.demand = 10;
  role.rate_at_slo = 1000;
  EXPECT_EQ(plan(role).groups, 1u);
}

TEST(Planner, MissingFiguresHold) {
  RoleSignals role = role_with(5, fast);
  role.groups.clear();
  EXPECT_EQ(plan(role).groups, 5u);
  EXPECT_EQ(plan(role).reason, PlanReason::no_figures);
}

TEST(Planner, WindowsHoldBothWays) {
  RoleSignals role = role_with(3, fast);
  role.since_scaled = 60s;
  EXPECT_EQ(plan(role).reason, PlanReason::stabilizing);
  role = role_with(3, slow);
  role.hold_up = 120s;
  role.since_scaled = 60s;
  EXPECT_EQ(plan(role).groups, 3u);
}

TEST(Planner, LimitsHold) {
  RoleSignals role = role_with(4, slow);
  role.max = 4;
  EXPECT_EQ(plan(role).groups, 4u);
  role.wanted = 9;
  EXPECT_EQ(plan(role).groups, 4u);
}

TEST(Planner, RatioRaisesTheShortSide) {
  std::vector<RoleSignals> roles{role_with(1, fair), role_with(8, fair)};
  roles[0].role = "prefill";
  PlannerLimits limits;
  limits.ratio = RatioLimits{"prefill", "decode", 25, 100};
  const auto out = plan_slo(roles, limits);
  EXPECT_EQ(out[0].groups, 2u);
  EXPECT_EQ(out[1].groups, 8u);
}

TEST(Planner, BudgetTakesFromWhatGrowsMostAndNeverBelowTheMinimum) {
  std::vector<RoleSignals> roles{role_with(2, slow), role_with(2, fair)};
  roles[0].gpus_a_group = 4;
  roles[1].gpus_a_group = 2;
  PlannerLimits limits;
  limits.gpu_budget = 12;
  auto out = plan_slo(roles, limits);
  EXPECT_EQ(out[0].groups, 2u);
  EXPECT_EQ(out[0].reason, PlanReason::budget);
  limits.gpu_budget = 1;
  out = plan_slo(roles, limits);
  EXPECT_EQ(out[0].groups, 1u);
  EXPECT_EQ(out[1].groups, 1u);
}

}  // namespace
}  // namespace penstock::ctl
