#include "operator/core/gang/gang.hpp"

namespace penstock::ctl {

std::string_view to_string(Gang gang) {
  switch (gang) {
    case Gang::kubernetes:
      return "Kubernetes";
    case Gang::kai:
      return "KAI";
    case Gang::volcano:
      return "Volcano";
    case Gang::none:
      return "None";
  }
  return "";
}

GangChoice choose_gang(api::SchedulingBackend wanted, const Capabilities& capabilities) {
  const auto missing = [](std::string_view name, std::string_view group) {
    return GangChoice{Gang::none,
                      Problem{"BackendNotServed", "scheduling.backend is " + std::string(name) +
                                                      ", but the API server doesn't serve " + std::string(group) +
                                                      ". Install it, or use Auto. Plain scheduling serves."}};
  };
  switch (wanted) {
    case api::SchedulingBackend::automatic:
      return {capabilities.pod_groups ? Gang::kubernetes : Gang::none, std::nullopt};
    case api::SchedulingBackend::kubernetes:
      if (!capabilities.pod_groups) return missing("Kubernetes", "scheduling.k8s.io/v1beta1");
      return {Gang::kubernetes, std::nullopt};
    case api::SchedulingBackend::kai:
      if (!capabilities.kai) return missing("KAI", "scheduling.run.ai/v2alpha2");
      return {Gang::kai, std::nullopt};
    case api::SchedulingBackend::volcano:
      if (!capabilities.volcano) return missing("Volcano", "scheduling.volcano.sh/v1beta1");
      return {Gang::volcano, std::nullopt};
    case api::SchedulingBackend::none:
      return {Gang::none, std::nullopt};
  }
  return {};
}

std::optional<GangObject> gang_object(Gang gang, const GangRequest& request) {
  if (request.size < 2) return std::nullopt;
  switch (gang) {
    case Gang::kubernetes:
      return detail::kubernetes_gang(request);
    case Gang::kai:
      return detail::kai_gang(request);
    case Gang::volcano:
      return detail::volcano_gang(request);
    case Gang::none:
      return std::nullopt;
  }
  return std::nullopt;
}

void join_gang(Gang gang, const GangRequest& request, std::uint32_t rank, json::Object& pod) {
  switch (gang) {
    case Gang::kubernetes:
      return detail::join_kubernetes(request, pod);
    case Gang::kai:
      return detail::join_kai(request, pod);
    case Gang::volcano:
      return detail::join_volcano(request, pod);
    case Gang::none:
      return detail::join_plain(request, rank, pod);
  }
}

bool prefers_by_itself(Gang gang) {
  switch (gang) {
    case Gang::kai:
    case Gang::volcano:
      return true;
    case Gang::kubernetes:
    case Gang::none:
      return false;
  }
  return false;
}

}  // namespace penstock::ctl
