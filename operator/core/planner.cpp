#include "operator/core/planner.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::ctl {
namespace {

std::uint32_t throughput_target(const RoleSignals& role) {
  if (!role.demand || !role.rate_at_slo || *role.rate_at_slo <= 0) return 0;
  const double groups = std::ceil(*role.demand / *role.rate_at_slo);
  return static_cast<std::uint32_t>(std::clamp(groups, 0.0, double(role.max)));
}

bool all_over_slo(const RoleSignals& role) {
  return role.latency_slo_ms > 0 && std::all_of(role.groups.begin(), role.groups.end(), [&](const GroupLoad& group) {
           return group.latency_ms > role.latency_slo_ms;
         });
}

/// All far below the SLO, and one fewer would still hold the load.
bool one_may_go(const RoleSignals& role, const PlannerLimits& limits) {
  if (role.groups.size() < 2) return false;
  double kv = 0, waiting = 0;
  for (const auto& group : role.groups) {
    if (role.latency_slo_ms > 0 && group.latency_ms >= limits.latency_low * role.latency_slo_ms) return false;
    kv += group.kv_share;
    waiting += group.waiting;
  }
  const double left = double(role.groups.size() - 1);
  return kv / left < limits.kv_share_max && waiting / left < limits.waiting_max;
}

RoleDecision hold(const RoleSignals& role, PlanReason reason) {
  const std::uint32_t groups = std::clamp(role.wanted, role.min, std::max(role.min, role.max));
  return {groups, groups == role.wanted ? reason : PlanReason::limit};
}

RoleDecision plan_role(const RoleSignals& role, const PlannerLimits& limits) {
  const bool demand_known = role.demand && role.rate_at_slo;
  if (role.groups.empty() && !demand_known) return hold(role, PlanReason::no_figures);
  const std::uint32_t by_demand = throughput_target(role);
  // What is starting will carry load soon; without this a burst doubles the fleet again and again.
  const std::uint32_t capacity = role.ready + role.starting;
  RoleDecision decision{role.wanted, PlanReason::steady};
  const bool over = !role.groups.empty() && all_over_slo(role);
  if (by_demand > role.wanted) {
    decision = {by_demand, PlanReason::throughput};
  } else if (over && role.starting > 0) {
    return hold(role, PlanReason::starting);
  } else if (over) {
    decision = {std::max(role.wanted, capacity) + 1, PlanReason::latency};
  } else if (one_may_go(role, limits) && by_demand < role.wanted && role.wanted > role.min) {
    decision = {role.wanted - 1, PlanReason::idle};
  }
  if (decision.groups > role.wanted) {
    if (role.since_scaled < role.hold_up) return hold(role, PlanReason::stabilizing);
    decision.groups = std::min(decision.groups, role.wanted + std::max(1u, role.step_up_max));
  } else if (decision.groups < role.wanted && role.since_scaled < role.hold_down) {
    return hold(role, PlanReason::stabilizing);
  }
  const std::uint32_t bounded = std::clamp(decision.groups, role.min, std::max(role.min, role.max));
  if (bounded != decision.groups) decision = {bounded, PlanReason::limit};
  return decision;
}

void keep_ratio(std::span<const RoleSignals> roles, std::vector<RoleDecision>& out, const RatioLimits& ratio) {
  std::size_t above = roles.size(), below = roles.size();
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i].role == ratio.numerator) above = i;
    if (roles[i].role == ratio.denominator) below = i;
  }
  if (above == roles.size() || below == roles.size()) return;
  const auto raise = [&](std::size_t i, std::uint64_t groups) {
    const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(groups, roles[i].max));
    if (wanted > out[i].groups) out[i] = {wanted, PlanReason::ratio};
  };
  // The side that is short grows; nothing shrinks for a ratio.
  if (ratio.min_percent) raise(above, (std::uint64_t{out[below].groups} * *ratio.min_percent + 99) / 100);
  if (ratio.max_percent && *ratio.max_percent > 0) {
    raise(below, (std::uint64_t{out[above].groups} * 100 + *ratio.max_percent - 1) / *ratio.max_percent);
  }
}

/// Takes from what grows most first, then from the largest role above its minimum.
void keep_budget(std::span<const RoleSignals> roles, std::vector<RoleDecision>& out, std::uint32_t budget) {
  const auto used = [&] {
    std::uint64_t gpus = 0;
    for (std::size_t i = 0; i < roles.size(); ++i) gpus += std::uint64_t{out[i].groups} * roles[i].gpus_a_group;
    return gpus;
  };
  while (used() > budget) {
    std::size_t pick = roles.size();
    for (std::size_t i = 0; i < roles.size(); ++i) {
      if (roles[i].gpus_a_group == 0 || out[i].groups <= roles[i].min) continue;
      if (pick == roles.size()) {
        pick = i;
        continue;
      }
      const auto growth = [&](std::size_t k) { return std::int64_t{out[k].groups} - std::int64_t{roles[k].wanted}; };
      const bool grows_more = growth(i) > growth(pick);
      const bool larger = growth(i) == growth(pick) && out[i].groups > out[pick].groups;
      if (grows_more || larger) pick = i;
    }
    if (pick == roles.size()) return;  // the minima alone are over the budget
    out[pick] = {out[pick].groups - 1, PlanReason::budget};
  }
}

}  // namespace

std::string_view to_string(PlanReason reason) {
  switch (reason) {
    case PlanReason::steady:
      return "Steady";
    case PlanReason::no_figures:
      return "NoFigures";
    case PlanReason::throughput:
      return "Throughput";
    case PlanReason::latency:
      return "LatencyAboveObjective";
    case PlanReason::idle:
      return "LatencyFarBelowObjective";
    case PlanReason::starting:
      return "GroupsStarting";
    case PlanReason::stabilizing:
      return "Stabilizing";
    case PlanReason::limit:
      return "Limited";
    case PlanReason::ratio:
      return "Ratio";
    case PlanReason::budget:
      return "GpuBudget";
  }
  return "";
}

std::vector<RoleDecision> plan_slo(std::span<const RoleSignals> roles, const PlannerLimits& limits) {
  std::vector<RoleDecision> out;
  out.reserve(roles.size());
  for (const auto& role : roles) out.push_back(plan_role(role, limits));
  if (limits.ratio) keep_ratio(roles, out, *limits.ratio);
  if (limits.gpu_budget) keep_budget(roles, out, *limits.gpu_budget);
  return out;
}

}  // namespace penstock::ctl
