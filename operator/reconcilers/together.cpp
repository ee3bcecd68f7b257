#include "operator/reconcilers/together.hpp"

#include <algorithm>

#include "operator/core/group.hpp"
#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

/// Of the other groups that it is to be with, where the oldest bound one is.
std::string where_the_first_is(const api::WorkerGroup& group, const std::vector<std::string>& roles,
                               std::string_view node_label, const Stores& stores) {
  const api::WorkerGroup* first = nullptr;
  std::string value;
  for (const auto* other : stores.groups.with_label(label::service, group.meta.labels.get(label::service))) {
    if (other == &group || other->meta.namespace_ != group.meta.namespace_ || drain_deadline(other->meta)) continue;
    if (std::find(roles.begin(), roles.end(), other->spec.role) == roles.end()) continue;
    if (first != nullptr && first->meta.created <= other->meta.created) continue;
    const std::string at = domain_of(stores.pods.with_label(label::group, other->meta.name), stores, node_label);
    if (at.empty()) continue;
    first = other;
    value = at;
  }
  return value;
}

/// How many more pods with so many devices fit on the nodes of a domain instance.
std::int64_t slots(const Together& together, std::string_view resource, std::int64_t devices, const Stores& stores) {
  std::int64_t sum = 0;
  for (const auto* node : stores.nodes.all()) {
    if (node->meta.labels.get(together.node_label) != together.value || !node->ready || node->cordoned) continue;
    std::int64_t free = count_of(node->devices, resource);
    for (const auto* pod : stores.pods.all()) {
      const bool ended = pod->phase == PodPhase::succeeded || pod->phase == PodPhase::failed;
      if (pod->node == node->meta.name && !ended) free -= count_of(pod->devices, resource);
    }
    sum += std::max<std::int64_t>(0, free) / devices;
  }
  return sum;
}

}  // namespace

std::string domain_of(const std::vector<const Pod*>& pods, const Stores& stores, std::string_view node_label) {
  for (const auto* pod : pods) {
    if (pod->meta.labels.get(label::leader) != "true" || !pod->bound() || pod->lost()) continue;
    const auto* node = stores.nodes.find({"", pod->node});
    if (node != nullptr) return std::string(node->meta.labels.get(node_label));
  }
  return {};
}

Together find_together(const PinnedRole& pinned, const api::WorkerGroup& group, const std::vector<const Pod*>& pods,
                       const Topology& topology, const Stores& stores) {
  Together out;
  const auto& wanted = pinned.service.spec.placement.co_locate;
  if (!wanted || wanted->enforcement != api::Enforcement::required) return out;
  if (std::find(wanted->roles.begin(), wanted->roles.end(), group.spec.role) == wanted->roles.end()) return out;
  const std::string_view node_label = topology.label_of(wanted->domain);
  const std::string value = where_the_first_is(group, wanted->roles, node_label, stores);
  if (value.empty()) return out;
  out.node_label = node_label;
  out.value = value;

  const auto& accelerators = pinned.role.accelerators;
  const std::int64_t devices = accelerators.count.value_or(accelerators.claims.empty() ? 1 : 0);
  const auto there = std::count_if(pods.begin(), pods.end(), [](const Pod* pod) { return !pod->lost(); });
  const std::int64_t missing = pinned.role.group.size - there;
  if (devices <= 0 || missing <= 0 || !stores.nodes.synced()) return out;
  const std::int64_t room = slots(out, accelerators.resource_name, devices, stores);
  if (room >= missing) return out;
  out.no_room = wanted->domain + " " + value + ", where the others are, has room for " + std::to_string(room) + " of " +
                std::to_string(missing) + " pods with " + std::to_string(devices) + " " + accelerators.resource_name +
                ". Free some, or make placement.coLocate Preferred.";
  return out;
}

}  // namespace penstock::ctl
