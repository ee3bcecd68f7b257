// KAI's PodGroup: minimum, queue, required and preferred level of a named topology.
#include "common/kube/model/known_types.hpp"
#include "operator/core/gang/gang.hpp"

namespace penstock::ctl::detail {
namespace {

constexpr std::string_view default_queue = "default";

std::string_view queue_of(const GangRequest& request) {
  return request.service->scheduling.queue.empty() ? default_queue
                                                   : std::string_view(request.service->scheduling.queue);
}

}  // namespace

std::optional<GangObject> kai_gang(const GangRequest& request) {
  json::Object spec{{"minMember", request.size}, {"queue", queue_of(request)}};
  if (!request.service->scheduling.priority_class_name.empty()) {
    spec["priorityClassName"] = request.service->scheduling.priority_class_name;
  }
  const auto& pack = request.role->placement.pack;
  json::Object constraint;
  const std::string_view required =
      request.topology->label_of(pack ? pack->required : request.role->placement.exclusive);
  if (!required.empty()) constraint["requiredTopologyLevel"] = required;
  if (pack && !pack->preferred.empty()) {
    constraint["preferredTopologyLevel"] = request.topology->label_of(pack->preferred);
  }
  if (!constraint.empty()) {
    constraint["topology"] = request.service->placement.topology_ref.name;
    spec["topologyConstraint"] = std::move(constraint);
  }
  return GangObject{kube::kai_pod_groups, std::move(spec)};
}

void join_kai(const GangRequest& request, json::Object& pod) {
  auto& metadata = pod["metadata"].as_object();
  metadata["labels"].as_object()["kai.scheduler/queue"] = queue_of(request);
  if (request.size > 1) {
    auto& annotations = metadata["annotations"].as_object();
    annotations["pod-group-name"] = request.name;
    annotations["kai.scheduler/skip-podgrouper"] = "true";  // or KAI makes a group of its own from the pod's owner
  }
  auto& scheduler = pod["spec"].as_object()["schedulerName"];
  if (scheduler.is_null()) scheduler = "kai-scheduler";
}

}  // namespace penstock::ctl::detail
