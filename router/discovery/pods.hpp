// Worker pods of the router's service, as the API server shows them, and what they are to the router. Pure; any thread.
// Bounded by the pods that the selector lets through, about half a KB each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/json.hpp"
#include "common/kube/core/store.hpp"
#include "common/kube/model/object_meta.hpp"
#include "router/backend/worker_target.hpp"

namespace penstock::router {

/// What is kept of a pod.
struct WorkerPod {
  kube::ObjectMeta meta;
  std::string ip;           // "" until the pod has one
  bool is_running = false;  // its containers have been started
};
Result<WorkerPod> parse_worker_pod(const json::Object& pod);

/// Labels that begin so become topology labels, without it: `topology.penstock.dev/rack`.
inline constexpr std::string_view topology_label_prefix = "topology.penstock.dev/";
/// The pairing key of a pod's revision; becomes the topology label `pairing`.
inline constexpr std::string_view pairing_label = "penstock.dev/pairing";
/// Set, to any value, on pods whose group is being drained.
inline constexpr std::string_view drain_annotation = "penstock.dev/drain-deadline";

/// The pods that can be dialled: running, with an address. One that is being deleted or drained is told apart, not left
/// out: its streams go on to their end. `port` is that of the control protocol.
std::vector<WorkerTarget> worker_targets(const kube::Store<WorkerPod>& pods, std::uint16_t port);

}  // namespace penstock::router
