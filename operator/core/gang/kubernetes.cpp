// The scheduler's own PodGroup: a minimum, one required topology key, and disruption of the whole.
#include "common/kube/model/known_types.hpp"
#include "operator/core/gang/gang.hpp"

namespace penstock::ctl::detail {

std::optional<GangObject> kubernetes_gang(const GangRequest& request) {
  json::Object spec;
  spec["schedulingPolicy"] = json::Object{{"gang", json::Object{{"minCount", request.size}}}};
  // A gang that loses a member to preemption has lost all: then better all at once.
  spec["disruptionMode"] = json::Object{{"all", json::Object{}}};
  if (!request.pack.empty()) {
    json::Object level{{"key", request.topology->label_of(request.pack)}};
    spec["schedulingConstraints"] = json::Object{{"topology", json::Array{std::move(level)}}};
  }
  if (!request.service->scheduling.priority_class_name.empty()) {
    spec["priorityClassName"] = request.service->scheduling.priority_class_name;
  }
  return GangObject{kube::pod_groups, std::move(spec)};
}

void join_kubernetes(const GangRequest& request, json::Object& pod) {
  if (request.size < 2) return;
  pod["spec"].as_object()["schedulingGroup"] = json::Object{{"podGroupName", request.name}};
}

}  // namespace penstock::ctl::detail
