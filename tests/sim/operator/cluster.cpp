#include "tests/sim/operator/cluster.hpp"

#include <algorithm>
#include <map>

#include "operator/core/names.hpp"

namespace penstock::sim {
namespace {

const kube::Key service_key{std::string(name_space), "chat"};

ctl::Pod view(const json::Object& object) {
  return ctl::parse_pod(object).value();
}

json::Object condition(std::string_view type, std::string_view status, kube::Timestamp now,
                       std::string_view reason = {}) {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"lastTransitionTime", kube::format_time(now)}};
}

}  // namespace

json::Object two_roles(int prefill, int decode, std::string_view image) {
  const auto role = [&](std::string_view name, std::string_view type, int replicas, int size) {
    json::Object container{{"name", "worker"}, {"image", image}};
    return json::Object{
        {"name", name},
        {"type", type},
        {"replicas", replicas},
        {"group", json::Object{{"size", size}}},
        {"accelerators", json::Object{{"count", 0}}},
        {"template", json::Object{{"spec", json::Object{{"containers", json::Array{std::move(container)}}}}}}};
  };
  return {{"model", json::Object{{"name", "m"}, {"uri", "file:///models/m.gguf"}}},
          {"roles", json::Array{role("prefill", "Prefill", prefill, 1), role("decode", "Decode", decode, 2)}}};
}

Cluster::Cluster(ApiServer& api, std::uint64_t seed, ClusterOptions options)
    : api_(api), random_(seed), options_(options) {
  for (std::uint32_t i = 0; i < options_.nodes; ++i) {
    const std::string name = "node-" + std::to_string(i);
    json::Object node{{"apiVersion", "v1"}, {"kind", "Node"}};
    node["metadata"] = json::Object{
        {"name", name},
        {"labels", json::Object{{"kubernetes.io/hostname", name}, {"rack", "rack-" + std::to_string(i / 4)}}}};
    node["status"] = json::Object{{"conditions", json::Array{condition("Ready", "True", api_.now)}}};
    api_.replace("nodes", std::move(node));
  }
}

void Cluster::turn() {
  bind();
  run_pods();
  deployments();
  api_.collect();
}

std::string Cluster::free_node(const std::vector<std::string>& taken, std::string_view label,
                               std::string_view value) const {
  std::map<std::string, std::uint32_t> used;
  for (const auto& pod : api_.list("pods")) ++used[view(*pod).node];
  for (const auto& node : taken) ++used[node];
  for (const auto& object : api_.list("nodes")) {
    const auto node = ctl::parse_node(*object).value();
    if (!label.empty() && node.meta.labels.get(label) != value) continue;
    if (node.ready && used[node.meta.name] < options_.pods_a_node) return node.meta.name;
  }
  return {};
}

/// Nodes for a gang; with a label all of one instance. None if there is no room for all of it.
std::vector<std::string> Cluster::nodes_for(std::size_t count, std::string_view label) const {
  std::vector<std::string> values;
  for (const auto& object : api_.list("nodes")) {
    values.emplace_back(kube::text_at(*object, {"metadata", "labels", label}).value_or(""));
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (label.empty()) values = {""};
  for (const auto& value : values) {
    std::vector<std::string> nodes;
    while (nodes.size() < count) {
      const std::string node = free_node(nodes, label, value);
      if (node.empty()) break;
      nodes.push_back(node);
    }
    if (nodes.size() == count) return nodes;
  }
  return {};
}

void Cluster::set_node(json::Object& pod, const std::string& node) {
  pod["spec"].as_object()["nodeName"] = node;
  pod["status"] =
      json::Object{{"phase", "Pending"}, {"conditions", json::Array{condition("PodScheduled", "True", api_.now)}}};
}

bool Cluster::bind_gang(const std::string& gang) {
  const auto* group = api_.find("podgroups.scheduling.k8s.io", {std::string(name_space), gang});
  if (group == nullptr) return false;
  const auto minimum = kube::integer_at(*group, {"spec", "schedulingPolicy", "gang", "minCount"});
  std::vector<json::Object> members;
  for (const auto& pod : api_.list("pods")) {
    const bool member = kube::text_at(*pod, {"spec", "schedulingGroup", "podGroupName"}) == std::string_view(gang);
    if (member && !view(*pod).bound() && !view(*pod).meta.deleted) members.push_back(*pod);
  }
  if (members.empty() || static_cast<std::int64_t>(members.size()) < minimum.value_or(1)) return false;
  const auto* constraints = kube::array_at(*group, {"spec", "schedulingConstraints", "topology"});
  const bool packed = constraints != nullptr && !constraints->empty();
  const std::string key(packed ? kube::text_at(constraints->at(0).as_object(), {"key"}).value_or("") : "");
  const auto nodes = nodes_for(members.size(), key);
  if (nodes.empty()) return false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    set_node(members[i], nodes[i]);
    api_.replace("pods", std::move(members[i]));
  }
  return true;
}

void Cluster::bind() {
  for (const auto& object : api_.list("pods")) {
    const auto* current =
        api_.find("pods", {std::string(name_space), std::string(*kube::text_at(*object, {"metadata", "name"}))});
    if (current == nullptr) continue;
    const auto pod = view(*current);
    if (pod.bound() || pod.meta.deleted || pod.gated || random_.below(options_.patience) != 0) continue;
    bool done = false;
    if (const auto gang = kube::text_at(*current, {"spec", "schedulingGroup", "podGroupName"})) {
      done = bind_gang(std::string(*gang));
    } else if (const std::string node = free_node({}); !node.empty()) {
      json::Object bound = *current;
      set_node(bound, node);
      api_.replace("pods", std::move(bound));
      done = true;
    }
    if (done || !pod.problem.empty()) continue;
    json::Object waiting = *current;
    waiting["status"] =
        json::Object{{"phase", "Pending"},
                     {"conditions", json::Array{condition("PodScheduled", "False", api_.now, "Unschedulable")}}};
    api_.replace("pods", std::move(waiting));
  }
}

void Cluster::run_pods() {
  for (const auto& object : api_.list("pods")) {
    const auto pod = view(*object);
    if (!pod.bound() || random_.below(options_.patience) != 0) {
      if (!pod.bound() && pod.meta.deleted) api_.remove("pods", pod.meta.key());
      continue;
    }
    const auto* node_object = api_.find("nodes", {"", pod.node});
    if (node_object == nullptr || !ctl::parse_node(*node_object).value().ready) continue;  // its kubelet is away
    if (pod.meta.deleted) {
      api_.remove("pods", pod.meta.key());
    } else if (!pod.ready && pod.phase == ctl::PodPhase::pending) {
      json::Object running = *object;
      auto& status = running["status"].as_object();
      status["phase"] = "Running";
      status["podIP"] = "10.0.0.1";
      status["conditions"].as_array().push_back(condition("Ready", "True", api_.now));
      api_.replace("pods", std::move(running));
    }
  }
}

void Cluster::deployments() {
  for (const auto& object : api_.list("deployments.apps")) {
    if (random_.below(options_.patience) != 0) continue;
    json::Object settled = *object;
    const auto replicas = kube::integer_at(*object, {"spec", "replicas"}).value_or(1);
    settled["status"] =
        json::Object{{"observedGeneration", kube::integer_at(*object, {"metadata", "generation"}).value_or(1)},
                     {"updatedReplicas", replicas},
                     {"readyReplicas", replicas}};
    api_.replace("deployments.apps", std::move(settled));
  }
}

void Cluster::apply_service(const json::Object& spec) {
  json::Object service{{"apiVersion", "penstock.dev/v1alpha1"}, {"kind", "LLMService"}};
  service["metadata"] = json::Object{{"namespace", name_space}, {"name", "chat"}};
  service["spec"] = spec;
  api_.replace("llmservices.penstock.dev", std::move(service));
}

void Cluster::edit_service(const std::function<void(json::Object&)>& edit) {
  json::Object service = *api_.find("llmservices.penstock.dev", service_key);
  edit(service["spec"].as_object());
  api_.replace("llmservices.penstock.dev", std::move(service));
}

void Cluster::delete_service() {
  api_.mark_deleted("llmservices.penstock.dev", service_key);
}

void Cluster::scale(const std::string& scaler, int replicas) {
  json::Object object = *api_.find("rolescalers.penstock.dev", {std::string(name_space), scaler});
  object["spec"].as_object()["replicas"] = replicas;
  api_.replace("rolescalers.penstock.dev", std::move(object));
}

void Cluster::apply_topology() {
  json::Object topology{{"apiVersion", "penstock.dev/v1alpha1"}, {"kind", "ClusterTopology"}};
  topology["metadata"] = json::Object{{"name", "default"}};
  topology["spec"] = json::Object{{"levels", json::Array{json::Object{{"domain", "Rack"}, {"nodeLabel", "rack"}}}}};
  api_.replace("clustertopologies.penstock.dev", std::move(topology));
}

void Cluster::kill_random_pod() {
  const auto pods = api_.list("pods");
  if (!pods.empty()) api_.mark_deleted("pods", view(*pods[random_.below(pods.size())]).meta.key());
}

void Cluster::fail_random_pod() {
  const auto pods = api_.list("pods");
  if (pods.empty()) return;
  json::Object pod = *pods[random_.below(pods.size())];
  if (!view(pod).bound()) return;
  pod["status"] = json::Object{{"phase", "Failed"}, {"reason", "Error"}};
  api_.replace("pods", std::move(pod));
}

void Cluster::lose_node(const std::string& name) {
  json::Object node = *api_.find("nodes", {"", name});
  node["status"] = json::Object{{"conditions", json::Array{condition("Ready", "Unknown", api_.now)}}};
  api_.replace("nodes", std::move(node));
}

}  // namespace penstock::sim
