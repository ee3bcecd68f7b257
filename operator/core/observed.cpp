#include "operator/core/observed.hpp"

#include <algorithm>

#include "operator/core/names.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {
namespace {

constexpr std::size_t detail_bytes_max = 256;

std::string text(const json::Object& object, std::initializer_list<std::string_view> path) {
  return std::string(kube::text_at(object, path).value_or(""));
}

/// Calls `use` with each object of an array that may be missing.
template <class Use>
void for_each(const json::Object& object, std::initializer_list<std::string_view> path, Use use) {
  const auto* list = kube::array_at(object, path);
  if (list == nullptr) return;
  for (const auto& item : *list) {
    if (const auto* entry = item.if_object()) use(*entry);
  }
}

PodPhase phase_of(std::string_view name) {
  if (name == "Pending") return PodPhase::pending;
  if (name == "Running") return PodPhase::running;
  if (name == "Succeeded") return PodPhase::succeeded;
  if (name == "Failed") return PodPhase::failed;
  return PodPhase::unknown;
}

void set_problem(Pod& pod, std::string_view reason, std::string_view detail) {
  pod.problem = reason;
  pod.problem_detail = detail.substr(0, detail_bytes_max);
}

/// Extended resources have a domain in their name; what the kubelet manages itself hasn't.
void add_devices(Devices& devices, const json::Object* quantities) {
  if (quantities == nullptr) return;
  for (const auto& [name, value] : *quantities) {
    const std::string_view key = name;
    if (key.find('/') == std::string_view::npos) continue;
    std::int64_t count = 0;
    if (const auto* digits = value.if_string()) {
      count = static_cast<std::int64_t>(parse_decimal(std::string_view(*digits)).value_or(0));
    }
    if (const auto* number = value.if_int64()) count = *number;
    if (count <= 0) continue;
    const auto at = std::find_if(devices.begin(), devices.end(), [&](const auto& one) { return one.first == key; });
    if (at == devices.end()) {
      devices.emplace_back(key, count);
    } else {
      at->second += count;
    }
  }
}

void read_conditions(Pod& pod, const json::Object& object) {
  for_each(object, {"status", "conditions"}, [&](const json::Object& condition) {
    const std::string type = text(condition, {"type"});
    const bool is_true = text(condition, {"status"}) == "True";
    if (type == "Ready") pod.ready = is_true;
    if (type != "PodScheduled") return;
    if (is_true) {
      if (auto at = kube::parse_timestamp(text(condition, {"lastTransitionTime"}))) pod.scheduled_at = *at;
    } else if (text(condition, {"reason"}) != "SchedulingGated") {
      set_problem(pod, text(condition, {"reason"}), text(condition, {"message"}));
    }
  });
}

bool is_pull_failure(std::string_view reason) {
  for (const std::string_view one : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
                                     "ImageInspectError", "RegistryUnavailable"}) {
    if (reason == one) return true;
  }
  return false;
}

void read_containers(Pod& pod, const json::Object& object) {
  const auto read = [&](const json::Object& status) {
    const std::string reason = text(status, {"state", "waiting", "reason"});
    if (is_pull_failure(reason)) {
      // The kubelet alternates between trying and backing off, with other words each time: one fact, said once.
      set_problem(pod, "ImagePullBackOff", "image " + text(status, {"image"}) + " can't be pulled");
    } else if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing") {
      set_problem(pod, reason, text(status, {"state", "waiting", "message"}));
    }
    for_each(status, {"allocatedResourcesStatus"}, [&](const json::Object& resource) {
      for_each(resource, {"resources"},
               [&](const json::Object& device) { pod.device_failed |= text(device, {"health"}) == "Unhealthy"; });
    });
  };
  for_each(object, {"status", "initContainerStatuses"}, read);
  for_each(object, {"status", "containerStatuses"}, read);
}

}  // namespace

std::int64_t count_of(const Devices& devices, std::string_view name) {
  for (const auto& [key, count] : devices) {
    if (key == name) return count;
  }
  return 0;
}

Result<Pod> parse_pod(const json::Object& object) {
  Pod pod;
  PENSTOCK_TRY(pod.meta, kube::parse_meta(object));
  pod.node = text(object, {"spec", "nodeName"});
  pod.ip = text(object, {"status", "podIP"});
  pod.phase = phase_of(text(object, {"status", "phase"}));
  std::int32_t index = 0;
  for_each(object, {"spec", "schedulingGates"}, [&](const json::Object& gate) {
    if (text(gate, {"name"}) == scheduling_gate) {
      pod.gated = true;
      pod.gate_index = index;
    }
    ++index;
  });
  for_each(object, {"spec", "containers"}, [&](const json::Object& container) {
    add_devices(pod.devices, kube::object_at(container, {"resources", "limits"}));
  });
  read_conditions(pod, object);
  read_containers(pod, object);
  if (pod.phase == PodPhase::failed && pod.problem.empty()) {
    set_problem(pod, text(object, {"status", "reason"}), text(object, {"status", "message"}));
    if (pod.problem.empty()) pod.problem = "Failed";
  }
  return pod;
}

Result<Node> parse_node(const json::Object& object) {
  Node node;
  PENSTOCK_TRY(node.meta, kube::parse_meta(object));
  if (const auto* spec = kube::object_at(object, {"spec"})) {
    const auto* off = spec->if_contains("unschedulable");
    node.cordoned = off != nullptr && off->is_bool() && off->get_bool();
  }
  add_devices(node.devices, kube::object_at(object, {"status", "allocatable"}));
  for_each(object, {"status", "conditions"}, [&](const json::Object& condition) {
    if (text(condition, {"type"}) != "Ready") return;
    node.ready = text(condition, {"status"}) == "True";
    if (auto at = kube::parse_timestamp(text(condition, {"lastTransitionTime"}))) node.ready_changed = *at;
  });
  return node;
}

Result<Deployment> parse_deployment(const json::Object& object) {
  Deployment deployment;
  PENSTOCK_TRY(deployment.meta, kube::parse_meta(object));
  const auto number = [&](std::initializer_list<std::string_view> path, std::int64_t otherwise) {
    return kube::integer_at(object, path).value_or(otherwise);
  };
  deployment.observed_generation = number({"status", "observedGeneration"}, 0);
  deployment.wanted = static_cast<std::int32_t>(number({"spec", "replicas"}, 1));
  deployment.updated = static_cast<std::int32_t>(number({"status", "updatedReplicas"}, 0));
  deployment.ready = static_cast<std::int32_t>(number({"status", "readyReplicas"}, 0));
  return deployment;
}

Result<Revision> parse_revision(const json::Object& object) {
  Revision revision;
  PENSTOCK_TRY(revision.meta, kube::parse_meta(object));
  revision.number = kube::integer_at(object, {"revision"}).value_or(0);
  if (const auto* data = kube::object_at(object, {"data"})) revision.data = *data;
  if (!revision.meta.controller) return revision;
  kube::ObjectMeta service;
  service.namespace_ = revision.meta.namespace_;
  service.name = revision.meta.controller->name;
  service.uid = revision.meta.controller->uid;
  auto pinned = read_pinned(revision.data, service);
  if (pinned) revision.pinned = std::make_shared<const PinnedRole>(std::move(*pinned));
  return revision;
}

Result<Child> parse_child(const json::Object& object) {
  Child child;
  PENSTOCK_TRY(child.meta, kube::parse_meta(object));
  return child;
}

}  // namespace penstock::ctl
