#include "router/discovery/pods.hpp"

namespace penstock::router {

Result<WorkerPod> parse_worker_pod(const json::Object& pod) {
  WorkerPod out;
  PENSTOCK_TRY(out.meta, kube::parse_meta(pod));
  out.ip = kube::text_at(pod, {"status", "podIP"}).value_or("");
  out.is_running = kube::text_at(pod, {"status", "phase"}) == "Running";
  return out;
}

std::vector<WorkerTarget> worker_targets(const kube::Store<WorkerPod>& pods, std::uint16_t port) {
  std::vector<WorkerTarget> targets;
  for (const WorkerPod* pod : pods.all()) {
    if (!pod->is_running || pod->ip.empty()) continue;
    WorkerTarget target;
    // An IPv6 address needs brackets before a port.
    const bool is_v6 = pod->ip.find(':') != std::string::npos;
    target.address = (is_v6 ? "[" + pod->ip + "]" : pod->ip) + ":" + std::to_string(port);
    target.is_draining = pod->meta.deleted.has_value() || pod->meta.annotations.find(drain_annotation).has_value();
    for (const auto& [key, value] : pod->meta.labels) {
      if (key.starts_with(topology_label_prefix)) {
        target.labels.emplace_back(key.substr(topology_label_prefix.size()), value);
      } else if (key == pairing_label) {
        target.labels.emplace_back("pairing", value);
      }
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

}  // namespace penstock::router
