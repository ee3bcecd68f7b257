// Volcano's PodGroup: minimum, queue, and the highest tier of its network topology that the gang may span.
#include <algorithm>

#include "common/kube/model/known_types.hpp"
#include "operator/core/gang/gang.hpp"

namespace penstock::ctl::detail {
namespace {

/// Volcano counts tiers from the narrowest switch upwards; a host is no tier.
std::optional<std::uint32_t> tier_of(const Topology& topology, std::string_view domain) {
  std::uint32_t tier = 0;
  for (std::size_t i = topology.levels.size(); i-- > 0;) {
    if (topology.levels[i].domain != api::host_domain) ++tier;
    if (topology.levels[i].domain == domain) return std::max(tier, 1u);
  }
  return std::nullopt;
}

}  // namespace

std::optional<GangObject> volcano_gang(const GangRequest& request) {
  json::Object spec{{"minMember", request.size}};
  const auto& scheduling = request.service->scheduling;
  if (!scheduling.queue.empty()) spec["queue"] = scheduling.queue;
  if (!scheduling.priority_class_name.empty()) spec["priorityClassName"] = scheduling.priority_class_name;
  const auto& pack = request.role->placement.pack;
  const std::string required = pack ? pack->required : request.role->placement.exclusive;
  const std::string preferred = pack ? pack->preferred : "";
  const bool hard = !required.empty();
  if (const auto tier = tier_of(*request.topology, hard ? required : preferred)) {
    spec["networkTopology"] = json::Object{{"mode", hard ? "hard" : "soft"}, {"highestTierAllowed", *tier}};
  }
  return GangObject{kube::volcano_pod_groups, std::move(spec)};
}

void join_volcano(const GangRequest& request, json::Object& pod) {
  if (request.size > 1) {
    pod["metadata"].as_object()["annotations"].as_object()["scheduling.k8s.io/group-name"] = request.name;
  }
  auto& scheduler = pod["spec"].as_object()["schedulerName"];
  if (scheduler.is_null()) scheduler = "volcano";
}

}  // namespace penstock::ctl::detail
