// The rollout schedule over all small cases: every state that can be reached by partial writes, by groups that become
// ready one at a time and by drains that end one at a time is visited, and the rules of docs/contracts/rollout.md are
// checked in each.
#include "operator/core/rollout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/time/random.hpp"

namespace penstock::ctl {
namespace {

using Roles = std::vector<RoleCounts>;

std::string print(const Roles& roles) {
  std::string text;
  for (const auto& r : roles) {
    text += "[want " + std::to_string(r.desired) + " +" + std::to_string(r.surge) + "-" +
            std::to_string(r.unavailable) + " new " + std::to_string(r.new_available) + "/" +
            std::to_string(r.new_pending) + " old " + std::to_string(r.old_available) + "/" +
            std::to_string(r.old_pending) + " draining " + std::to_string(r.draining) + "]";
  }
  return text;
}

std::vector<std::uint32_t> key_of(const Roles& roles) {
  std::vector<std::uint32_t> key;
  for (const auto& r : roles) {
    key.insert(key.end(), {r.new_available, r.new_pending, r.old_available, r.old_pending, r.draining});
  }
  return key;
}

Roles all_old(const std::vector<std::uint32_t>& desired, std::uint32_t surge, std::uint32_t unavailable) {
  Roles roles;
  for (std::uint32_t n : desired) {
    RoleCounts role;
    role.desired = n;
    role.surge = surge;
    role.unavailable = unavailable;
    role.old_available = n;
    roles.push_back(role);
  }
  return roles;
}

void apply(RoleCounts& role, const RoleStep& step) {
  role.new_pending += step.create_new;
  role.old_pending += step.create_old;
  role.old_available -= step.drain_old;
  role.old_pending -= step.drop_old;
  role.draining += step.drain_old + step.drop_old;
  const std::uint32_t pending = std::min(step.remove_new, role.new_pending);
  role.new_pending -= pending;
  role.new_available -= step.remove_new - pending;
  role.draining += step.remove_new;
}

Roles after(Roles roles, const RollPlan& plan) {
  for (std::size_t i = 0; i < roles.size(); ++i) apply(roles[i], plan.roles[i]);
  return roles;
}

bool empty(const RollPlan& plan) {
  return std::all_of(plan.roles.begin(), plan.roles.end(), [](const RoleStep& step) { return step.empty(); });
}

bool finished(const Roles& roles) {
  return std::all_of(roles.begin(), roles.end(), [](const RoleCounts& r) {
    return r.made_old() == 0 && r.new_available == r.desired && r.new_pending == 0;
  });
}

bool settled(const Roles& roles) {
  return std::all_of(roles.begin(), roles.end(),
                     [](const RoleCounts& r) { return r.new_pending + r.old_pending + r.draining == 0; });
}

/// The rules that hold for each plan in each state.
std::string broken_rule(const Roles& roles, const RollPlan& plan) {
  const Roles then = after(roles, plan);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const auto& role = roles[i];
    const auto& step = plan.roles[i];
    const std::uint32_t floor = role.desired > role.unavailable ? role.desired - role.unavailable : 0;
    const std::uint32_t now = role.old_available + role.new_available;
    if (step.drain_old > 0 && now - step.drain_old < floor) return "capacity floor";
    if (step.drain_old > 0 && step.create_new > 0 && then[i].live() > role.desired) return "one side a plan";
    if (step.create_new + step.create_old > 0 && then[i].live() > role.desired &&
        then[i].live() + then[i].draining > role.desired + role.surge) {
      return "surge";
    }
    if (role.live() == role.desired && step.remove_new > 0) return "removes what it wants";
  }
  return {};
}

/// Whichever role of a pair loses its last old group, the other one loses it in the same plan.
bool pairs_stay(const Roles& before, const Roles& then) {
  if (before[0].desired == 0 || before[1].desired == 0) return true;
  if (before[0].made_old() == 0 || before[1].made_old() == 0) return true;
  return (then[0].made_old() == 0) == (then[1].made_old() == 0);
}

class Walk {
 public:
  explicit Walk(RollOptions options) : options_(options) {}

  /// Visits everything that can be reached; at most `states_max` states.
  void from(Roles roles, std::size_t states_max = 2'000'000) {
    push(std::move(roles));
    while (!open_.empty() && !::testing::Test::HasFailure()) {
      ASSERT_LT(seen_.size(), states_max);
      const Roles state = std::move(open_.back());
      open_.pop_back();
      visit(state);
    }
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }

 private:
  void push(Roles roles) {
    if (seen_.insert(key_of(roles)).second) open_.push_back(std::move(roles));
  }

  void visit(const Roles& state) {
    const RollPlan plan = plan_roll(state, options_);
    const std::string broken = broken_rule(state, plan);
    ASSERT_TRUE(broken.empty()) << broken << ": " << print(state) << " -> " << print(after(state, plan));
    ASSERT_TRUE(pairs_stay(state, after(state, plan))) << print(state) << " -> " << print(after(state, plan));
    for (const auto& step : plan.roles) ASSERT_EQ(step.create_old + step.remove_new, 0u) << print(state);
    if (empty(plan) && settled(state)) {
      ASSERT_TRUE(finished(state)) << "stuck: " << print(state);
      ++ends_;
    }
    push(after(state, plan));
    for (std::size_t i = 0; i < state.size(); ++i) {
      single_writes(state, plan, i);
      events(state, i);
    }
  }

  /// A crash after any one write of the plan.
  void single_writes(const Roles& state, const RollPlan& plan, std::size_t i) {
    const auto try_one = [&](std::uint32_t RoleStep::* member) {
      if (plan.roles[i].*member == 0) return;
      // Drains of a pair that ends are one plan; a crash between its two writes is repaired by the next plan.
      RoleStep one;
      one.*member = 1;
      Roles then = state;
      apply(then[i], one);
      push(std::move(then));
    };
    try_one(&RoleStep::create_new);
    try_one(&RoleStep::drop_old);
    try_one(&RoleStep::drain_old);
  }

  void events(const Roles& state, std::size_t i) {
    const auto move_one = [&](std::uint32_t RoleCounts::* from, std::uint32_t RoleCounts::* to) {
      if (state[i].*from == 0) return;
      Roles then = state;
      --(then[i].*from);
      if (to != nullptr) ++(then[i].*to);
      push(std::move(then));
    };
    move_one(&RoleCounts::new_pending, &RoleCounts::new_available);
    move_one(&RoleCounts::draining, nullptr);
  }

  RollOptions options_;
  std::set<std::vector<std::uint32_t>> seen_;
  std::vector<Roles> open_;
  std::size_t ends_ = 0;
};

TEST(Rollout, KeepsEveryRuleInEveryReachableStateOfTwoRoles) {
  std::size_t states = 0;
  for (std::uint32_t p = 0; p <= 4; ++p) {
    for (std::uint32_t d = 0; d <= 4; ++d) {
      for (std::uint32_t surge = 0; surge <= 2; ++surge) {
        for (std::uint32_t unavailable = 0; unavailable <= 2; ++unavailable) {
          if (surge + unavailable == 0) continue;
          Walk walk({});
          walk.from(all_old({p, d}, surge, unavailable));
          if (HasFailure()) FAIL() << "p " << p << " d " << d << " surge " << surge << " unavailable " << unavailable;
          EXPECT_EQ(walk.ends(), 1u);
          states += walk.states();
        }
      }
    }
  }
  RecordProperty("states", static_cast<int>(states));
}

TEST(Rollout, KeepsEveryRuleWithUnequalRoles) {
  for (const auto& shape :
       std::vector<std::vector<std::uint32_t>>{{1, 8}, {8, 1}, {2, 7}, {3, 5}, {1, 1, 3}, {2, 1, 2}}) {
    for (std::uint32_t surge = 0; surge <= 2; ++surge) {
      Walk walk({});
      walk.from(all_old(shape, surge, surge == 0 ? 1 : 0));
      EXPECT_EQ(walk.ends(), 1u);
    }
  }
}

/// Events in random order, with failures, up to four roles of together at most twelve groups.
void roll_with_failures(std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint32_t> desired(2 + random.below(3));
  for (auto& n : desired) n = static_cast<std::uint32_t>(random.below(12 / desired.size() + 1));
  const auto surge = static_cast<std::uint32_t>(random.below(3));
  const auto unavailable = static_cast<std::uint32_t>(surge == 0 ? 1 + random.below(2) : random.below(3));
  Roles roles = all_old(desired, surge, unavailable);
  RollOptions options;
  if (random.below(4) == 0) options.strategy = RollStrategy::recreate;
  int failures = 20;
  for (int turn = 0; turn < 4000; ++turn) {
    auto& role = roles[random.below(roles.size())];
    const auto event = random.below(8);
    if (event == 0 && role.new_pending > 0) {
      --role.new_pending;
      ++role.new_available;
    } else if (event == 1 && role.draining > 0) {
      --role.draining;
    } else if (event == 2 && failures > 0 && role.new_available > 0) {
      --failures;
      --role.new_available;
      ++role.new_pending;
    } else if (event == 3 && failures > 0 && role.old_available > 0) {
      --failures;
      --role.old_available;
      ++role.old_pending;
    } else if (event == 4 && failures > 0) {
      --failures;
      role.desired = static_cast<std::uint32_t>(random.below(5));  // someone scales while it rolls
    } else if (event == 5 && failures > 0 && role.new_available > 0) {
      --failures;
      --role.new_available;  // deleted by hand
    }
    const RollPlan plan = plan_roll(roles, options);
    if (options.strategy == RollStrategy::coordinated) {
      ASSERT_EQ(broken_rule(roles, plan), "") << print(roles);
    }
    roles = after(roles, plan);
    if (failures == 0 && finished(roles) && settled(roles)) return;
  }
  FAIL() << "did not end, seed " << seed << ": " << print(roles);
}

TEST(Rollout, EndsAfterFailuresAndScaling) {
  for (std::uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) roll_with_failures(seed);
}

TEST(Rollout, PartitionStopsWithTheRightShareAndNoSurge) {
  for (std::uint32_t percent = 0; percent <= 100; percent += 5) {
    RollOptions options;
    options.partition_percent = percent;
    Roles roles = all_old({4, 8}, 1, 0);
    for (int turn = 0; turn < 200; ++turn) {
      roles = after(roles, plan_roll(roles, options));
      for (auto& role : roles) {
        role.new_available += std::exchange(role.new_pending, 0);
        role.draining = 0;
      }
    }
    const std::uint32_t last = 8 * percent / 100;
    EXPECT_EQ(roles[0].live(), 4u) << percent;
    EXPECT_EQ(roles[1].live(), 8u) << percent;
    EXPECT_EQ(roles[1].new_available, last) << percent;
    EXPECT_EQ(roles[0].new_available, new_at(4, 1, last, 8)) << percent;
    EXPECT_TRUE(empty(plan_roll(roles, options))) << percent << print(roles);
  }
}

TEST(Rollout, PausedMakesMissingGroupsOfTheOldRevision) {
  Roles roles = all_old({2, 3}, 1, 0);
  RollOptions options;
  options.state = RollState::paused;
  EXPECT_TRUE(empty(plan_roll(roles, options)));
  roles[1].desired = 5;
  const RollPlan plan = plan_roll(roles, options);
  EXPECT_EQ(plan.roles[1], (RoleStep{.create_old = 2}));
}

TEST(Rollout, UnreadyOldGroupsGoAtOnceAndCostNoBudget) {
  Roles roles = all_old({3}, 1, 0);
  roles[0].old_available = 0;
  roles[0].old_pending = 3;
  const RollPlan plan = plan_roll(roles, {});
  EXPECT_EQ(plan.roles[0].drop_old, 3u);
  EXPECT_EQ(plan.roles[0].create_new, 3u);
}

TEST(Rollout, RecreateMakesNothingWhileAnythingOldIsLeft) {
  RollOptions options;
  options.strategy = RollStrategy::recreate;
  Roles roles = all_old({1, 2}, 1, 0);
  RollPlan plan = plan_roll(roles, options);
  EXPECT_EQ(plan.roles[1], (RoleStep{.drain_old = 2}));
  roles = after(roles, plan);
  EXPECT_TRUE(empty(plan_roll(roles, options)));
  for (auto& role : roles) role.draining = 0;
  EXPECT_EQ(plan_roll(roles, options).roles[1], (RoleStep{.create_new = 2}));
}

TEST(Rollout, ZeroIsANormalCount) {
  Roles roles = all_old({0, 0}, 1, 0);
  EXPECT_TRUE(empty(plan_roll(roles, {})));
  roles[0].old_available = 2;
  EXPECT_EQ(plan_roll(roles, {}).roles[0].drain_old, 2u);
}

}  // namespace
}  // namespace penstock::ctl
