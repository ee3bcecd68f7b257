// The status of a service: nine conditions, all set from the first write, counts by role, and nothing that grows with
// the number of groups: at most 4 KB. Recomputed from observation at each look; only last transition times are carried
// over. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/gang/gang.hpp"
#include "operator/core/group.hpp"
#include "operator/core/service.hpp"
#include "operator/core/service_troubles.hpp"

namespace penstock::ctl {

struct StatusInput {
  const api::LLMService* service = nullptr;
  const ResolvedService* resolved = nullptr;
  const ServicePlan* plan = nullptr;
  GangChoice gang;
  std::optional<Problem> topology;   // what is wrong with the placement
  std::optional<Problem> model;      // why the weights aren't there
  std::optional<Problem> template_;  // what the API server said when a pod of a new revision was tried
  std::optional<Problem> scaling;
  std::string scaling_summary;                    // of the last plan, if roles are scaled
  std::string refusal, refusal_reason;            // the API server's word on the last write
  std::optional<std::int64_t> certificate_end_s;  // Unix seconds; nothing if unknown
  bool router_ready = false;
  std::string endpoint;
  kube::Timestamp now;
};

struct StatusResult {
  api::LLMServiceStatus status;
  std::vector<Notice> notices;         // transitions only
  std::optional<Duration> look_again;  // when a condition changes by time alone
};

StatusResult service_status(const StatusInput& input);

/// How long before its end a certificate is complained about.
inline constexpr std::int64_t certificate_warning_s = 7 * 24 * 3600;

}  // namespace penstock::ctl
