#include "operator/core/rollout.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::ctl {
namespace {

std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

std::uint32_t less(std::uint32_t a, std::uint32_t b) {
  return a > b ? a - b : 0;
}

std::uint32_t steps_of(std::span<const RoleCounts> roles) {
  std::uint32_t steps = 1;
  for (const auto& role : roles) {
    const std::uint32_t batch = role.surge > 0 ? role.surge : std::max(1u, role.unavailable);
    steps = std::max(steps, ceil_div(role.desired, batch));
  }
  return steps;
}

/// The furthest step whose new groups are all available, in every role.
std::uint32_t reached_step(std::span<const RoleCounts> roles, std::uint32_t steps) {
  std::uint32_t reached = steps;
  for (const auto& role : roles) {
    std::uint32_t own = 0;
    while (own < steps && new_at(role.desired, role.surge, own + 1, steps) <= role.new_available) ++own;
    reached = std::min(reached, own);
  }
  return reached;
}

/// Nothing is old anywhere: the service only scales.
RoleStep scale(const RoleCounts& role) {
  RoleStep step;
  step.create_new = less(role.desired, role.made_new());
  step.remove_new = less(role.made_new(), role.desired);
  return step;
}

RoleStep recreate(const RoleCounts& role, bool anything_old_left) {
  RoleStep step;
  step.drain_old = role.old_available;
  step.drop_old = role.old_pending;
  step.remove_new = less(role.made_new(), role.desired);
  if (!anything_old_left) step.create_new = less(role.desired, role.made_new());
  return step;
}

/// How many old groups a role still wants at the end of what is allowed: none, unless a partition or a pause stops.
struct Stop {
  std::uint32_t new_max = 0;
  std::uint32_t old_kept = 0;
};

Stop stop_at(const RoleCounts& role, std::uint32_t step, std::uint32_t steps) {
  if (step == steps) return {role.desired, 0};
  const std::uint32_t new_max = std::min(role.desired, new_at(role.desired, role.surge, step, steps));
  // With a surge the last step may leave one more old group than is needed; it goes, so that a stop holds no surge.
  return {new_max, role.desired - new_max};
}

RoleStep roll(const RoleCounts& role, std::uint32_t reached, std::uint32_t last, std::uint32_t steps) {
  RoleStep out;
  const Stop stop = stop_at(role, last, steps);
  const std::uint32_t next = std::min(reached + 1, last);

  // Take away: unready old groups at once, ready ones by the schedule and never below the floor.
  out.drop_old = std::min(role.old_pending, less(role.made_old(), stop.old_kept));
  const std::uint32_t old_left = role.made_old() - out.drop_old;
  std::uint32_t keep = old_at(role.desired, role.surge > 0 ? reached : next, steps);
  // Scaled down, or more old than the surge allows beside the new: the rest is not waited for.
  keep = std::min(keep, less(role.desired + role.surge, role.made_new()));
  if (reached >= last) keep = stop.old_kept;
  keep = std::max(keep, std::min(stop.old_kept, role.desired));
  const std::uint32_t floor = less(role.desired, role.unavailable);
  const std::uint32_t spare = less(role.old_available + role.new_available, floor);
  out.drain_old = std::min({less(old_left, keep), role.old_available, spare});
  out.remove_new = less(role.made_new(), role.desired);

  // Make: one side a plan, except for what is missing altogether.
  const std::uint32_t live = role.live() - out.drop_old - out.drain_old - out.remove_new;
  const std::uint32_t missing = less(role.desired, live);
  const std::uint32_t made_new = role.made_new() - out.remove_new;
  const std::uint32_t wanted_new = less(new_at(role.desired, role.surge, next, steps), made_new);
  // What is taken away holds its hardware for a while yet.
  const std::uint32_t room = less(role.desired + role.surge, role.live() + role.draining);
  if (out.drain_old == 0) out.create_new = std::min({wanted_new, room, less(stop.new_max, made_new)});
  const std::uint32_t fill_new = std::min(missing, less(stop.new_max, made_new));
  out.create_new = std::max(out.create_new, fill_new);
  out.create_old = less(missing, out.create_new);
  return out;
}

}  // namespace

std::uint32_t old_at(std::uint32_t desired, std::uint32_t step, std::uint32_t steps) {
  return desired - static_cast<std::uint32_t>(std::uint64_t{step} * desired / steps);
}

std::uint32_t new_at(std::uint32_t desired, std::uint32_t surge, std::uint32_t step, std::uint32_t steps) {
  if (step == 0) return 0;
  if (surge == 0) return static_cast<std::uint32_t>(std::uint64_t{step} * desired / steps);
  // Never more than what fits beside the old groups that the step before has left.
  return std::min(ceil_div(std::uint64_t{step} * desired, steps), desired + surge - old_at(desired, step - 1, steps));
}

RollPlan plan_roll(std::span<const RoleCounts> roles, const RollOptions& options) {
  RollPlan plan;
  plan.roles.resize(roles.size());
  std::uint32_t old = 0, draining = 0;
  for (const auto& role : roles) {
    PENSTOCK_CHECK(role.surge + role.unavailable > 0);
    old += role.made_old();
    draining += role.draining;
  }
  if (old == 0 && (options.strategy == RollStrategy::coordinated || draining == 0)) {
    for (std::size_t i = 0; i < roles.size(); ++i) plan.roles[i] = scale(roles[i]);
    return plan;
  }
  if (options.strategy == RollStrategy::recreate && options.state == RollState::running) {
    plan.steps = 1;
    for (std::size_t i = 0; i < roles.size(); ++i) plan.roles[i] = recreate(roles[i], old + draining > 0);
    return plan;
  }
  plan.steps = steps_of(roles);
  plan.step = reached_step(roles, plan.steps);
  std::uint32_t last = static_cast<std::uint32_t>(std::uint64_t{plan.steps} * options.partition_percent / 100);
  if (options.state == RollState::paused) last = std::min(last, plan.step);
  const std::uint32_t reached = std::min(plan.step, last);
  for (std::size_t i = 0; i < roles.size(); ++i) plan.roles[i] = roll(roles[i], reached, last, plan.steps);
  return plan;
}

}  // namespace penstock::ctl
