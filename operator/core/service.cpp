#include "operator/core/service.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "operator/core/group.hpp"
#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

GroupFacts facts_of(const api::WorkerGroup& group, const ResolvedRole* role, const ServiceView& view) {
  GroupFacts out;
  out.group = &group;
  out.is_new = role != nullptr && group.spec.role_hash == role->hash;
  out.leaving = group.meta.deleted.has_value() || drain_deadline(group.meta).has_value();
  const auto& conditions = group.status.conditions;
  out.failed = kube::is_true(conditions, "Failed");
  out.scheduled = kube::is_true(conditions, "Scheduled");
  const auto* ready = kube::find_condition(conditions, "Ready");
  out.ready = ready != nullptr && ready->status == kube::ConditionStatus::yes;
  out.available =
      out.ready && view.now.unix_s() - ready->last_transition.unix_s() >= view.service->spec.rollout.min_ready_seconds;
  const auto* scheduled = kube::find_condition(conditions, "Scheduled");
  if (scheduled != nullptr && !out.scheduled && scheduled->reason == "Unschedulable") {
    out.unschedulable_s = view.now.unix_s() - scheduled->last_transition.unix_s();
  }
  return out;
}

std::vector<RolePlan> sort_groups(const ServiceView& view) {
  std::vector<RolePlan> roles;
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < view.resolved->workers.size(); ++i) {
    const auto& role = view.resolved->workers[i];
    by_name.emplace(role.spec.name, roles.size());
    roles.push_back({&role, role.spec.name, view.desired[i], {}, {}, {}});
  }
  for (const auto* group : view.groups) {
    auto at = by_name.find(group->spec.role);
    if (at == by_name.end()) {
      // A role that was taken out of the spec: its groups drain like any old ones, down to none.
      at = by_name.emplace(group->spec.role, roles.size()).first;
      roles.push_back({nullptr, group->spec.role, 0, {}, {}, {}});
    }
    auto& role = roles[at->second];
    role.groups.push_back(facts_of(*group, role.role, view));
  }
  return roles;
}

bool surge_is_stuck(const std::vector<RolePlan>& roles, const api::RolloutSpec& rollout) {
  if (rollout.surge_fallback_seconds <= 0) return false;
  for (const auto& role : roles) {
    for (const auto& group : role.groups) {
      if (group.is_new && !group.leaving && group.unschedulable_s.value_or(-1) >= rollout.surge_fallback_seconds) {
        return true;
      }
    }
  }
  return false;
}

RoleCounts count(const RolePlan& role, const api::RolloutSpec& rollout, bool fallback) {
  RoleCounts out;
  out.desired = static_cast<std::uint32_t>(std::max(0, role.desired));
  out.surge = static_cast<std::uint32_t>(std::max<std::int64_t>(0, rollout.max_surge.rounded_up(role.desired)));
  out.unavailable =
      static_cast<std::uint32_t>(std::max<std::int64_t>(0, rollout.max_unavailable.rounded_down(role.desired)));
  if (fallback) {
    out.surge = 0;
    out.unavailable = std::max(1u, out.unavailable);
  }
  // Shares of a few groups may both be none; one step must always be possible.
  if (out.surge + out.unavailable == 0) out.surge = 1;
  for (const auto& group : role.groups) {
    if (group.leaving) {
      ++out.draining;
    } else if (group.is_new) {
      ++(group.available ? out.new_available : out.new_pending);
    } else {
      ++(group.available ? out.old_available : out.old_pending);
    }
  }
  return out;
}

std::vector<const api::WorkerGroup*> new_victims(const RolePlan& role) {
  std::vector<GroupFacts> candidates;
  for (const auto& group : role.groups) {
    if (group.is_new && !group.leaving) candidates.push_back(group);
  }
  // Whoever serves least goes first; among equals the youngest, since the oldest have the warmest caches.
  std::sort(candidates.begin(), candidates.end(), [](const GroupFacts& a, const GroupFacts& b) {
    return std::tuple(a.available, a.ready, a.scheduled, b.group->meta.created, b.group->meta.name) <
           std::tuple(b.available, b.ready, b.scheduled, a.group->meta.created, a.group->meta.name);
  });
  std::vector<const api::WorkerGroup*> out;
  for (const auto& candidate : candidates) out.push_back(candidate.group);
  return out;
}

void choose(std::vector<RolePlan>& roles) {
  for (std::size_t i = 0; i < roles.size(); ++i) {
    auto& role = roles[i];
    std::uint32_t ready = role.step.drain_old, pending = role.step.drop_old;
    for (const auto* victim : pick_victims(roles, i)) {
      const auto at = std::find_if(role.groups.begin(), role.groups.end(),
                                   [&](const GroupFacts& facts) { return facts.group == victim; });
      auto& left = at->available ? ready : pending;
      if (left == 0) continue;
      --left;
      role.drain.push_back(victim);
    }
    const auto surplus = new_victims(role);
    for (std::size_t k = 0; k < role.step.remove_new && k < surplus.size(); ++k) role.drain.push_back(surplus[k]);
  }
}

/// When the plan changes by time alone: a group becomes available, or a surge has waited long enough for its room.
std::optional<Duration> next_change(const ServicePlan& plan, const ServiceView& view) {
  const std::int64_t patience_s = view.service->spec.rollout.surge_fallback_seconds;
  std::optional<Duration> soonest;
  for (const auto& role : plan.roles) {
    for (const auto& group : role.groups) {
      if (group.leaving) continue;
      if (group.is_new && group.unschedulable_s && *group.unschedulable_s < patience_s) {
        const Duration left = std::chrono::seconds(patience_s - *group.unschedulable_s);
        soonest = std::min(soonest.value_or(left), left);
      }
      if (!group.ready || group.available) continue;
      const auto* ready = kube::find_condition(group.group->status.conditions, "Ready");
      const Duration left = std::chrono::seconds(ready->last_transition.unix_s() +
                                                 view.service->spec.rollout.min_ready_seconds - view.now.unix_s());
      soonest = std::min(soonest.value_or(left), left);
    }
  }
  return soonest;
}

}  // namespace

std::vector<const api::WorkerGroup*> pick_victims(const std::vector<RolePlan>& roles, std::size_t role) {
  // Pairing keys by the roles that still have a live group of them.
  std::map<std::string, std::set<std::size_t>> sides;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    for (const auto& group : roles[i].groups) {
      const auto key = group.group->meta.labels.get(label::pairing);
      if (!key.empty() && !group.leaving) sides[std::string(key)].insert(i);
    }
  }
  const auto is_half = [&](const GroupFacts& group) {
    const auto key = group.group->meta.labels.get(label::pairing);
    return !key.empty() && sides[std::string(key)].size() < 2;
  };
  std::vector<GroupFacts> candidates;
  for (const auto& group : roles[role].groups) {
    if (!group.is_new && !group.leaving) candidates.push_back(group);
  }
  std::sort(candidates.begin(), candidates.end(), [&](const GroupFacts& a, const GroupFacts& b) {
    return std::tuple(!is_half(a), a.available, a.group->meta.created, a.group->meta.name) <
           std::tuple(!is_half(b), b.available, b.group->meta.created, b.group->meta.name);
  });
  std::vector<const api::WorkerGroup*> out;
  for (const auto& candidate : candidates) out.push_back(candidate.group);
  return out;
}

ServicePlan plan_service(const ServiceView& view) {
  ServicePlan plan;
  plan.roles = sort_groups(view);
  const auto& rollout = view.service->spec.rollout;
  plan.surge_fallback = surge_is_stuck(plan.roles, rollout);
  std::vector<RoleCounts> counts;
  for (const auto& role : plan.roles) counts.push_back(count(role, rollout, plan.surge_fallback));
  RollOptions options;
  options.strategy =
      rollout.strategy == api::RolloutStrategy::recreate ? RollStrategy::recreate : RollStrategy::coordinated;
  options.state = rollout.paused ? RollState::paused : RollState::running;
  options.partition_percent = static_cast<std::uint32_t>(std::clamp(rollout.partition, 0, 100));
  plan.roll = plan_roll(counts, options);
  for (std::size_t i = 0; i < plan.roles.size(); ++i) {
    plan.roles[i].step = plan.roll.roles[i];
    plan.rolling |= counts[i].made_old() > 0;
  }
  choose(plan.roles);
  plan.look_again = next_change(plan, view);
  return plan;
}

}  // namespace penstock::ctl
