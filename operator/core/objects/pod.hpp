// One worker pod: the generated part, the user's template over it, and then what must hold whatever the template says.
// Pods of a group differ only by rank, so that a scheduler can treat them alike. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/core/gang/gang.hpp"
#include "operator/core/objects/common.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {

struct PodInput {
  const kube::ObjectMeta* group = nullptr;  // the WorkerGroup: name, labels (service, role, revision), owner
  const PinnedRole* pinned = nullptr;
  const api::RoleSpec* live = nullptr;  // of the service as it is now: drain, spread
  std::uint64_t epoch = 0;
  std::uint32_t rank = 0;
  Gang gang = Gang::none;
  GangRequest gang_request;
  const Topology* topology = nullptr;
  const Capabilities* capabilities = nullptr;
  std::vector<std::string> cache_hosts;  // nodes that hold the ModelCache; empty without one
  std::string cache_path;                // on those nodes
  std::string together_domain;           // co-location: label and value that the group is pinned to, or empty
  std::string together_value;
  bool compute_domain = false;
};

Desired worker_pod(const PodInput& input);

/// Where the weights are in the container: a path below model.mount.path, or the path of a file:// URI.
std::string model_path(const api::ModelSpec& model);

/// Objects that must be there before the pods of an epoch: claim templates, claims of the group, ComputeDomain, the
/// gang. In order of creation.
std::vector<Desired> group_children(const PodInput& input);

std::string gang_name(std::string_view group, std::uint64_t epoch);

}  // namespace penstock::ctl
