#include "router/core/policy/settings.hpp"

#include <cmath>

namespace penstock::router {

std::string_view to_string(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kv_aware:
      return "kv-aware";
    case PolicyKind::least_load:
      return "least-load";
    case PolicyKind::round_robin:
      return "round-robin";
    case PolicyKind::random:
      return "random";
  }
  return "?";
}

std::optional<PolicyKind> parse_policy(std::string_view name) {
  for (PolicyKind kind : {PolicyKind::kv_aware, PolicyKind::least_load, PolicyKind::round_robin, PolicyKind::random}) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

std::string_view to_string(Duty duty) {
  switch (duty) {
    case Duty::whole:
      return "whole";
    case Duty::prefill:
      return "prefill";
    case Duty::decode:
      return "decode";
  }
  return "?";
}

std::string_view to_string(Ineligible reason) {
  switch (reason) {
    case Ineligible::no:
      return "no";
    case Ineligible::state:
      return "state";
    case Ineligible::excluded:
      return "excluded";
    case Ineligible::too_long:
      return "too_long";
    case Ineligible::full:
      return "full";
    case Ineligible::hot:
      return "hot";
    case Ineligible::unpaired:
      return "unpaired";
  }
  return "?";
}

std::vector<std::string> PolicySettings::validate() const {
  std::vector<std::string> problems;
  const auto not_negative = [&](float value, const char* key) {
    if (!std::isfinite(value) || value < 0) problems.push_back(std::string(key) + ": must be zero or more");
  };
  const auto positive = [&](Duration value, const char* key) {
    if (value <= Duration::zero()) problems.push_back(std::string(key) + ": must be more than zero");
  };
  not_negative(uncached_weight, "uncached_weight");
  not_negative(home_weight, "home_weight");
  not_negative(wait_weight, "wait_weight");
  not_negative(decode_weight, "decode_weight");
  not_negative(recent_weight, "recent_weight");
  not_negative(recent_prompt_weight, "recent_prompt_weight");
  not_negative(barrier_tokens, "barrier_tokens");
  not_negative(credit_decay, "credit_decay");
  not_negative(gate_absolute_tokens, "gate_absolute_tokens");
  not_negative(transfer_weight, "transfer_weight");
  not_negative(rack_transfer_weight, "rack_transfer_weight");
  not_negative(far_transfer_weight, "far_transfer_weight");
  if (far_transfer_weight < rack_transfer_weight) {
    problems.emplace_back("far_transfer_weight: must not be below rack_transfer_weight");
  }
  not_negative(waiting_allowance, "waiting_allowance");
  if (!(gate_relative >= 1)) problems.push_back("gate_relative: must be one or more");
  positive(recent_half_life, "recent_half_life");
  positive(load_stale_after, "load_stale_after");
  positive(slow_start, "slow_start");
  return problems;
}

std::vector<std::string> FleetSettings::validate() const {
  std::vector<std::string> problems = policy.validate();
  for (std::string& problem : problems) problem.insert(0, "policy.");
  if (block_tokens == 0) problems.push_back("block_tokens: must be more than zero");
  if (index_bytes_max < (1ull << 20)) problems.push_back("index_bytes_max: must be at least 1 MiB");
  if (workers_max == 0 || workers_max > 4096) problems.push_back("workers_max: must be 1 to 4096");
  if (predicted_blocks_max == 0) problems.push_back("predicted_blocks_max: must be more than zero");
  if (predicted_life < Duration::zero()) problems.push_back("predicted_life: must be zero or more");
  return problems;
}

}  // namespace penstock::router
