// What a kubelet writes, as JSON: its Node, its Lease, the status of a pod that runs; and what it reads of a pod. Pure;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/timestamp.hpp"

namespace penstock::bench {

inline constexpr std::string_view node_lease_namespace = "kube-node-lease";
inline constexpr std::size_t nodes_max = 10'000;

struct NodeShape {
  std::size_t cpus = 64;
  std::size_t memory_gib = 512;
  std::size_t gpus = 8;
  std::size_t pods_max = 150;
  std::size_t nodes_per_rack = 10;   // labels of tier-0 and of the NVLink domain
  std::size_t nodes_per_block = 50;  // label of tier-1
};

/// "fake-0042"; nothing for a name that is not of this form.
std::string node_name(std::size_t index);
std::optional<std::size_t> node_index(std::string_view name);

json::Object node_object(std::size_t index, const NodeShape& shape, kube::Timestamp now);
json::Object lease_object(std::size_t index, kube::Timestamp now);
/// A merge patch of the Lease.
json::Object renewal(kube::Timestamp now);

struct NodeState {
  kube::ObjectMeta meta;
  bool ready = false;
};
Result<NodeState> project_node(const json::Object& object);
/// A merge patch of the node's status.
json::Object ready_again(kube::Timestamp now);

struct FakePod {
  struct Container {
    std::string name, image;
  };
  kube::ObjectMeta meta;
  std::string node;
  std::string phase;
  std::vector<Container> containers;
};
Result<FakePod> project_pod(const json::Object& object);

/// A merge patch of the pod's status: all containers run and are ready. Init containers are not reported.
json::Object running_status(const FakePod& pod, std::string_view node_address, std::string_view pod_address,
                            kube::Timestamp now);

/// Addresses within 10.0.0.0/8 that nothing listens on.
std::string node_address(std::size_t index);
std::string pod_address(std::uint64_t number);

}  // namespace penstock::bench
