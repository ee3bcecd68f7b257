// The planner of scaling mode SLO: how many groups each role of a service should have, from what routers and leaders
// report. Two targets, the larger wins: throughput (predicted demand over what a group does within the SLO) and latency
// (one more if every group is over the SLO, one fewer if all are far below it and the rest could carry the load). Then
// guards: groups that are still starting count as capacity, steps, limits, ratio, GPU budget. Missing figures hold,
// they never shrink. Pure; any thread. All roles of one service are planned together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/clock.hpp"

namespace penstock::ctl {

/// One ready group, over the last window.
struct GroupLoad {
  double latency_ms = 0;  // the percentile that the SLO names: TTFT of a prefill group, ITL of a decode group
  double kv_share = 0;    // of the pool that can't be evicted, 0 to 1
  double waiting = 0;     // requests in its queue
};

/// One role as observed. Counts are groups.
struct RoleSignals {
  std::string role;
  std::uint32_t wanted = 0;  // RoleScaler.spec.replicas now
  std::uint32_t ready = 0;
  std::uint32_t starting = 0;  // wanted, not ready, younger than startupSeconds
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::uint32_t step_up_max = 1;  // of one decision
  std::uint32_t gpus_a_group = 0;
  double latency_slo_ms = 0;          // 0: no objective of this role
  std::optional<double> demand;       // predicted, tokens a second; absent: not measured
  std::optional<double> rate_at_slo;  // of one group within the SLO, tokens a second
  std::vector<GroupLoad> groups;      // of those ready; empty while ready > 0 means no figures
  Duration since_scaled = std::chrono::hours(24);
  Duration hold_up{};  // stabilization windows
  Duration hold_down = std::chrono::seconds(600);
};

/// Bounds groups(numerator) * 100 / groups(denominator).
struct RatioLimits {
  std::string numerator, denominator;
  std::optional<std::uint32_t> min_percent, max_percent;
};

struct PlannerLimits {
  std::optional<std::uint32_t> gpu_budget;
  std::optional<RatioLimits> ratio;
  double latency_low = 0.8;   // of the SLO; below it in all groups one may go
  double kv_share_max = 0.8;  // that the remaining groups may reach
  double waiting_max = 5;     // a group's queue that the remaining groups may reach
};

enum class PlanReason : std::uint8_t {
  steady,
  no_figures,   // hold: nothing is measured
  throughput,   // demand
  latency,      // every group over the SLO
  idle,         // all far below it
  starting,     // hold: groups are on their way
  stabilizing,  // hold: scaled a short while ago
  limit,        // min, max or step
  ratio,
  budget,
};
std::string_view to_string(PlanReason reason);  // CamelCase, for conditions

struct RoleDecision {
  std::uint32_t groups = 0;
  PlanReason reason = PlanReason::steady;
};

/// In the order of `roles`. Never below min unless the budget can't hold the minima; the result of roles that must
/// shrink is to be written first, so that the budget holds at each moment.
std::vector<RoleDecision> plan_slo(std::span<const RoleSignals> roles, const PlannerLimits& limits);

}  // namespace penstock::ctl
