// What a decision may depend on besides the objects: the time, chance, what the cluster can do, which images came with
// this operator. Passed by the shell, or by a test. Owned by the caller for the length of one reconcile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/kube/model/status.hpp"
#include "common/kube/model/timestamp.hpp"
#include "common/time/random.hpp"
#include "operator/core/planner.hpp"

namespace penstock::ctl {

/// Which APIs are served; discovered at start and again every few minutes.
struct Capabilities {
  bool pod_groups = false;              // scheduling.k8s.io/v1beta1
  bool kai = false;                     // scheduling.run.ai/v2alpha2
  bool volcano = false;                 // scheduling.volcano.sh/v1beta1
  bool resource_claims = false;         // resource.k8s.io/v1
  bool compute_domains = false;         // resource.nvidia.com/v1beta1
  bool restart_all_containers = false;  // container restart rules with that action
  bool http_routes = false;             // gateway.networking.k8s.io/v1
  bool inference_pools = false;         // inference.networking.k8s.io/v1
  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

/// Used unless the pod template names an image. What a revision was made with is kept in it, so a new default reaches
/// only new revisions.
struct Images {
  std::string router;
  std::string worker;
};

/// Measured by the shell's probe of routers; empty without one.
struct ServiceFigures {
  std::map<std::string, std::vector<GroupLoad>> loads;  // by role
  std::map<std::string, double> demand, rate_at_slo;    // by role, tokens a second
};

/// Why the previous reconcile of a key ended early.
struct WriteFailure {
  kube::ApiStatus status;
  bool of_dry_run = false;  // the API server would not take what was tried; nothing was made or changed
};

struct Context {
  kube::Timestamp now;
  Random& random;
  std::function<std::string(std::size_t)> secret_bytes;  // from the system's random source
  Capabilities capabilities;
  Images images;
  std::optional<WriteFailure> last_failure;  // of the previous reconcile of this key, if that failed
  const ServiceFigures* figures = nullptr;
  std::optional<std::int64_t> certificate_end_s;  // of a service's TLS, the earliest that its routers say; Unix seconds
};

}  // namespace penstock::ctl
