// What the operator keeps of objects it reads: small projections, never the object. Made on the watch's thread, read by
// reconciles. Parsers take what they understand and pass over the rest: one odd object never stops a list. A pod costs
// about 1 KB. Plain values; pure, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json/json.hpp"
#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/timestamp.hpp"

namespace penstock::ctl {

struct PinnedRole;  // resolve.hpp

/// Counts of extended resources ("nvidia.com/gpu"), by name; a few at most.
using Devices = std::vector<std::pair<std::string, std::int64_t>>;
std::int64_t count_of(const Devices& devices, std::string_view name);

enum class PodPhase : std::uint8_t { pending, running, succeeded, failed, unknown };

struct Pod {
  kube::ObjectMeta meta;
  std::string node;  // empty: not bound yet
  std::string ip;
  PodPhase phase = PodPhase::pending;
  bool ready = false;
  bool gated = false;            // has our scheduling gate
  std::int32_t gate_index = -1;  // of our gate in spec.schedulingGates
  kube::Timestamp scheduled_at;  // of the PodScheduled condition turning True; 0 before
  std::string problem;           // why it doesn't get on: "ImagePullBackOff", "Unschedulable", ...
  std::string problem_detail;    // at most 256 bytes
  bool device_failed = false;    // a device of it is unhealthy
  Devices devices;               // that its containers ask for

  bool bound() const { return !node.empty(); }
  /// Ended, or on its way out for whatever reason: it will not serve again.
  bool lost() const {
    return meta.deleted || phase == PodPhase::failed || phase == PodPhase::succeeded || device_failed;
  }
};
Result<Pod> parse_pod(const json::Object& object);

struct Node {
  kube::ObjectMeta meta;  // with all labels: topology is read from them
  bool ready = false;
  bool cordoned = false;
  kube::Timestamp ready_changed;
  Devices devices;  // that it has for pods
};
Result<Node> parse_node(const json::Object& object);

struct Deployment {
  kube::ObjectMeta meta;
  std::int64_t observed_generation = 0;
  std::int32_t wanted = 0, updated = 0, ready = 0;
  bool settled() const { return observed_generation >= meta.generation && updated >= wanted && ready >= wanted; }
};
Result<Deployment> parse_deployment(const json::Object& object);

/// A ControllerRevision: what a role looked like, with everything its pods are made from.
struct Revision {
  kube::ObjectMeta meta;
  std::int64_t number = 0;
  json::Object data;
  std::shared_ptr<const PinnedRole> pinned;  // the data read once; null if it can't be. Shared by copies of this
};
Result<Revision> parse_revision(const json::Object& object);

/// Any other child: that it is there, and the hash of what it was made from, is all that matters.
struct Child {
  kube::ObjectMeta meta;
};
Result<Child> parse_child(const json::Object& object);

}  // namespace penstock::ctl
