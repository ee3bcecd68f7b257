#include "bench/operator/fake_kubelet.hpp"

#include <charconv>
#include <cstdio>
#include <utility>

#include "common/kube/model/known_types.hpp"

namespace penstock::bench {
namespace {

constexpr std::string_view name_prefix = "fake-";
constexpr std::int64_t lease_seconds = 40;

std::string address(unsigned second, std::uint64_t rest) {
  char text[24];
  std::snprintf(text, sizeof text, "10.%u.%u.%u", second, static_cast<unsigned>(rest / 250 % 256),
                static_cast<unsigned>(rest % 250 + 1));
  return text;
}

json::Object condition(std::string_view type, std::string_view status, const std::string& now) {
  return json::Object{{"type", type}, {"status", status}, {"lastTransitionTime", now}};
}

json::Object node_ready(kube::Timestamp now) {
  const std::string time = kube::format_time(now);
  json::Object ready = condition("Ready", "True", time);
  ready["lastHeartbeatTime"] = time;
  ready["reason"] = "KubeletReady";
  return ready;
}

json::Object capacity(const NodeShape& shape) {
  json::Object quantities{{"cpu", std::to_string(shape.cpus)},
                          {"memory", std::to_string(shape.memory_gib) + "Gi"},
                          {"ephemeral-storage", "1Ti"},
                          {"pods", std::to_string(shape.pods_max)}};
  if (shape.gpus > 0) quantities["nvidia.com/gpu"] = std::to_string(shape.gpus);
  return quantities;
}

}  // namespace

std::string node_name(std::size_t index) {
  const std::string digits = std::to_string(index);
  return std::string(name_prefix) + std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
}

std::optional<std::size_t> node_index(std::string_view name) {
  if (!name.starts_with(name_prefix)) return std::nullopt;
  name.remove_prefix(name_prefix.size());
  std::size_t index = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
  if (read.ec != std::errc() || read.ptr != name.data() + name.size()) return std::nullopt;
  return index;
}

std::string node_address(std::size_t index) {
  return address(240, index);
}
std::string pod_address(std::uint64_t number) {
  return address(static_cast<unsigned>(241 + number / 64'000 % 8), number % 64'000);
}

json::Object node_object(std::size_t index, const NodeShape& shape, kube::Timestamp now) {
  const std::string name = node_name(index);
  const std::string rack = "rack-" + std::to_string(index / shape.nodes_per_rack);
  const std::string block = "block-" + std::to_string(index / shape.nodes_per_block);
  json::Object node = kube::make_object(kube::nodes, {"", name},
                                        {{"kubernetes.io/hostname", name},
                                         {"kubernetes.io/os", "linux"},
                                         {"kubernetes.io/arch", "amd64"},
                                         {"topology.kubernetes.io/zone", "zone-0"},
                                         {"fabric.topograph.run/tier-1", block},
                                         {"fabric.topograph.run/tier-0", rack},
                                         {"nvidia.com/gpu.clique", "fake." + rack}});
  node["status"] =
      json::Object{{"capacity", capacity(shape)},
                   {"allocatable", capacity(shape)},
                   {"conditions", json::Array{node_ready(now)}},
                   {"addresses", json::Array{json::Object{{"type", "InternalIP"}, {"address", node_address(index)}}}}};
  return node;
}

json::Object lease_object(std::size_t index, kube::Timestamp now) {
  const std::string name = node_name(index);
  json::Object lease = kube::make_object(kube::leases, {std::string(node_lease_namespace), name});
  lease["spec"] = json::Object{
      {"holderIdentity", name}, {"leaseDurationSeconds", lease_seconds}, {"renewTime", kube::format_micro_time(now)}};
  return lease;
}

json::Object renewal(kube::Timestamp now) {
  return json::Object{{"spec", json::Object{{"renewTime", kube::format_micro_time(now)}}}};
}

Result<NodeState> project_node(const json::Object& object) {
  PENSTOCK_TRY(kube::ObjectMeta meta, kube::parse_meta(object));
  NodeState node{std::move(meta), false};
  const json::Array* conditions = kube::array_at(object, {"status", "conditions"});
  for (std::size_t i = 0; conditions != nullptr && i < conditions->size(); ++i) {
    const json::Object* entry = (*conditions)[i].if_object();
    if (entry == nullptr || kube::text_at(*entry, {"type"}) != "Ready") continue;
    node.ready = kube::text_at(*entry, {"status"}) == "True";
  }
  return node;
}

json::Object ready_again(kube::Timestamp now) {
  return json::Object{{"status", json::Object{{"conditions", json::Array{node_ready(now)}}}}};
}

Result<FakePod> project_pod(const json::Object& object) {
  PENSTOCK_TRY(kube::ObjectMeta meta, kube::parse_meta(object));
  FakePod pod;
  pod.meta = std::move(meta);
  pod.node = kube::text_at(object, {"spec", "nodeName"}).value_or("");
  pod.phase = kube::text_at(object, {"status", "phase"}).value_or("");
  const json::Array* containers = kube::array_at(object, {"spec", "containers"});
  for (std::size_t i = 0; containers != nullptr && i < containers->size(); ++i) {
    const json::Object* container = (*containers)[i].if_object();
    if (container == nullptr) continue;
    pod.containers.push_back({std::string(kube::text_at(*container, {"name"}).value_or("")),
                              std::string(kube::text_at(*container, {"image"}).value_or(""))});
  }
  return pod;
}

json::Object running_status(const FakePod& pod, std::string_view node_address, std::string_view pod_address,
                            kube::Timestamp now) {
  const std::string time = kube::format_time(now);
  json::Array containers;
  for (const FakePod::Container& container : pod.containers) {
    containers.push_back(json::Object{{"name", container.name},
                                      {"image", container.image},
                                      {"imageID", "fake://" + container.image},
                                      {"containerID", "fake://" + pod.meta.uid + "/" + container.name},
                                      {"ready", true},
                                      {"started", true},
                                      {"restartCount", 0},
                                      {"state", json::Object{{"running", json::Object{{"startedAt", time}}}}}});
  }
  json::Array conditions;
  // A merge patch replaces the list, so it names what the scheduler wrote as well.
  for (const char* type : {"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"}) {
    json::Object entry = condition(type, "True", time);
    entry["observedGeneration"] = pod.meta.generation;
    conditions.push_back(std::move(entry));
  }
  json::Object status{{"phase", "Running"},
                      {"observedGeneration", pod.meta.generation},
                      {"startTime", time},
                      {"hostIP", node_address},
                      {"hostIPs", json::Array{json::Object{{"ip", node_address}}}},
                      {"podIP", pod_address},
                      {"podIPs", json::Array{json::Object{{"ip", pod_address}}}},
                      {"conditions", std::move(conditions)},
                      {"containerStatuses", std::move(containers)}};
  return json::Object{{"status", std::move(status)}};
}

}  // namespace penstock::bench
