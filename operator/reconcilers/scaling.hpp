// How many groups each worker role of a service should have: its own replicas, or what its RoleScaler says. A
// RoleScaler is made once with a seed; after that others write it: a person, HPA or KEDA, and in mode SLO the planner
// here. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/kube/model/write.hpp"
#include "operator/core/context.hpp"
#include "operator/core/placement.hpp"
#include "operator/core/resolve.hpp"
#include "operator/reconcilers/stores.hpp"

namespace penstock::ctl {

struct ScalingPlan {
  std::vector<std::int32_t> desired;  // by resolved.workers
  std::vector<kube::Write> writes;    // shrinking roles first
  std::optional<Problem> problem;
  std::string summary;
  std::optional<Duration> look_again;
};

ScalingPlan plan_scaling(const api::LLMService& service, const ResolvedService& resolved, const Stores& stores,
                         const Context& context);

}  // namespace penstock::ctl
