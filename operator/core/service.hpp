// What a service needs now: how many groups of which revision to make, which to drain. Groups are judged by their
// status, the numbers come from rollout.hpp, the choice of victims is here. Pure; any thread. O(groups log groups).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/llm_service.hpp"
#include "operator/api/worker_group.hpp"
#include "operator/core/resolve.hpp"
#include "operator/core/rollout.hpp"

namespace penstock::ctl {

/// One group as the service sees it.
struct GroupFacts {
  const api::WorkerGroup* group = nullptr;
  bool is_new = false;  // has the revision that its role wants
  bool ready = false;
  bool available = false;  // ready for minReadySeconds
  bool scheduled = false;
  bool leaving = false;  // drains or is being deleted
  bool failed = false;
  std::optional<std::int64_t> unschedulable_s;  // how long it has been so
};

struct RolePlan {
  const ResolvedRole* role = nullptr;  // null: the role is no longer in the spec
  std::string name;
  std::int32_t desired = 0;
  std::vector<GroupFacts> groups;
  RoleStep step;
  std::vector<const api::WorkerGroup*> drain;  // in the order in which they are to be told
};

struct ServicePlan {
  std::vector<RolePlan> roles;
  RollPlan roll;
  bool rolling = false;         // something old is left
  bool surge_fallback = false;  // the surge doesn't fit; it goes on by unavailability
  std::optional<Duration> look_again;
};

struct ServiceView {
  const api::LLMService* service = nullptr;
  const ResolvedService* resolved = nullptr;
  std::vector<std::int32_t> desired;            // by resolved->workers
  std::vector<const api::WorkerGroup*> groups;  // all of the service
  kube::Timestamp now;
};

ServicePlan plan_service(const ServiceView& view);

/// Which old groups go: those whose pairing key has lost its other side, then pending ones, then the oldest.
std::vector<const api::WorkerGroup*> pick_victims(const std::vector<RolePlan>& roles, std::size_t role);

}  // namespace penstock::ctl
