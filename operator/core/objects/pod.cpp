#include "operator/core/objects/pod.hpp"

#include <algorithm>

#include "common/kube/model/known_types.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/merge.hpp"
#include "operator/core/objects/pod_parts.hpp"

namespace penstock::ctl {
namespace {

json::Object field_env(std::string_view name, std::string_view path) {
  return {{"name", name}, {"valueFrom", json::Object{{"fieldRef", json::Object{{"fieldPath", path}}}}}};
}

json::Array environment(const PodInput& input) {
  const std::string& group = input.group->name;
  json::Array env;
  env.push_back(field_env("POD_NAME", "metadata.name"));
  env.push_back(field_env("POD_NAMESPACE", "metadata.namespace"));
  env.push_back(field_env("POD_IP", "status.podIP"));
  env.push_back(field_env("NODE_NAME", "spec.nodeName"));
  // The kubelet copies these two from the node, so that no worker needs to read nodes.
  env.push_back(field_env("TOPOLOGY_ZONE", "metadata.labels['topology.kubernetes.io/zone']"));
  env.push_back(field_env("TOPOLOGY_REGION", "metadata.labels['topology.kubernetes.io/region']"));
  env.push_back(field_env("GANG_RANK", "metadata.labels['penstock.dev/rank']"));
  env.push_back(json::Object{{"name", "GANG_SIZE"}, {"value", std::to_string(input.pinned->role.group.size)}});
  if (input.pinned->role.group.size > 1) {
    env.push_back(
        json::Object{{"name", "GANG_LEADER"},
                     {"value", pod_name(group, input.epoch, 0) + "." + gangs_name(input.pinned->service.meta.name)}});
  }
  return env;
}

json::Array arguments(const PodInput& input) {
  const auto& role = input.pinned->role;
  const auto& service = input.pinned->service;
  json::Array args;
  const auto add = [&](std::string_view name, std::string_view value) {
    args.emplace_back("--" + std::string(name) + "=" + std::string(value));
  };
  add("model", model_path(service.spec.model));
  add("model-name", service.spec.model.name);
  add("role", role.type == api::RoleType::encode ? "unified" : role_type_label(role.type));
  add("control-address", "0.0.0.0");
  add("control-port", std::to_string(control_port));
  add("kv-address", "$(POD_IP)");
  add("kv-port", std::to_string(transfer_port));
  add("kv-transfer", service.spec.security.kv_transfer == api::KvTransfer::off ? "off" : "trusted-fabric");
  add("admin-address", "0.0.0.0");
  add("admin-port", std::to_string(admin_port));
  add("ticket-key-file", std::string(keys_path) + "/ticket.key");
  add("block-hash-key-file", std::string(keys_path) + "/block-hash.key");
  add("drain-grace", std::to_string(input.live->drain_seconds) + "s");
  if (role.parallelism.tensor > 1) add("tensor-parallel", std::to_string(role.parallelism.tensor));
  if (!input.pinned->pairing.empty()) add("topology", "pairing=" + input.pinned->pairing);
  add("topology", "zone=$(TOPOLOGY_ZONE)");
  if (service.spec.security.worker_tls_secret_ref) {
    for (const auto& [name, file] :
         {std::pair("cert-file", "tls.crt"), {"key-file", "tls.key"}, {"ca-file", "ca.crt"}}) {
      add("control-tls-" + std::string(name), std::string(worker_tls_path) + "/" + file);
      add("kv-tls-" + std::string(name), std::string(worker_tls_path) + "/" + file);
    }
    add("kv-tls-peer-name", worker_tls_name);
  } else {
    add("insecure-plaintext", "true");
  }
  for (const auto& [name, value] : role.settings) add(name, value);
  return args;
}

json::Object probe(std::string_view path, int period_s, int failures) {
  return {{"httpGet", json::Object{{"path", path}, {"port", admin_port}}},
          {"periodSeconds", period_s},
          {"failureThreshold", failures},
          {"timeoutSeconds", 3}};
}

/// Liveness begins when the program answers at all, which a large pool of memory or a slow disk may put off; how long a
/// start may take is startupSeconds, and the operator's own word on that comes first.
json::Object startup_probe(std::int32_t startup_seconds) {
  constexpr int period_s = 2, slack_s = 60;
  return probe("/healthz", period_s, (std::max(0, startup_seconds) + slack_s) / period_s);
}

json::Array container_ports() {
  json::Array ports;
  for (const auto& [name, port] :
       {std::pair("control", control_port), {"transfer", transfer_port}, {"admin", admin_port}}) {
    ports.push_back(json::Object{{"name", name}, {"containerPort", port}, {"protocol", "TCP"}});
  }
  return ports;
}

json::Object worker_container(const PodInput& input) {
  json::Object container{{"name", "worker"}, {"image", input.pinned->image}, {"args", arguments(input)}};
  container["env"] = environment(input);
  container["ports"] = container_ports();
  container["startupProbe"] = startup_probe(input.live->startup_seconds);
  container["readinessProbe"] = probe("/readyz", 2, 3);
  container["livenessProbe"] = probe("/healthz", 10, 6);
  // Endpoints hear of the deletion before the program stops taking work; after that SIGTERM starts its drain.
  container["lifecycle"] = json::Object{{"preStop", json::Object{{"sleep", json::Object{{"seconds", 3}}}}}};
  container["resources"] = container_resources(input);
  container["securityContext"] = container_security(input.pinned->role);
  container["volumeMounts"] = volume_mounts(input);
  if (input.pinned->role.group.restart.in_place == api::InPlaceRestart::prefer &&
      input.capabilities->restart_all_containers) {
    // A worker that lost a peer ends with 42; the kubelet then restarts the containers and keeps devices and volumes.
    json::Object rule{{"action", "RestartAllContainers"},
                      {"exitCodes", json::Object{{"operator", "In"}, {"values", json::Array{42}}}}};
    container["restartPolicy"] = "Never";
    container["restartPolicyRules"] = json::Array{std::move(rule)};
  }
  return container;
}

/// Fields that hold whatever the template says.
void enforce(const PodInput& input, json::Object& spec) {
  const auto& role = input.pinned->role;
  spec["automountServiceAccountToken"] = false;
  spec["terminationGracePeriodSeconds"] = input.live->drain_seconds + 30;
  spec["restartPolicy"] = restart_policy(role) == api::RestartPolicy::pod ? "Always" : "Never";
  spec["hostname"] = pod_name(input.group->name, input.epoch, input.rank);
  if (role.group.size > 1) spec["subdomain"] = gangs_name(input.pinned->service.meta.name);
  if (role.network.host_network) spec["hostNetwork"] = true;
  const auto& scheduling = input.pinned->service.spec.scheduling;
  if (!scheduling.scheduler_name.empty()) spec["schedulerName"] = scheduling.scheduler_name;
  if (!scheduling.priority_class_name.empty()) spec["priorityClassName"] = scheduling.priority_class_name;
}

kube::StringMap pod_labels(const PodInput& input) {
  kube::StringMap labels = role_labels(input.pinned->service.meta.name, input.pinned->role);
  labels.set(label::group, input.group->name);
  labels.set(label::epoch, std::to_string(input.epoch));
  labels.set(label::rank, std::to_string(input.rank));
  labels.set(label::revision, input.group->labels.get(label::revision));
  if (!input.pinned->pairing.empty()) labels.set(label::pairing, input.pinned->pairing);
  if (input.rank == 0) labels.set(label::leader, "true");
  return labels;
}

}  // namespace

Desired worker_pod(const PodInput& input) {
  Desired pod{kube::pods, {input.group->namespace_, pod_name(input.group->name, input.epoch, input.rank)}, {}};
  pod.body = kube::make_object(pod.type, pod.key);
  json::Object spec;
  spec["containers"] = json::Array{worker_container(input)};
  spec["volumes"] = volumes(input);
  spec["securityContext"] = pod_security();
  if (auto claims = pod_claims(input); !claims.empty()) spec["resourceClaims"] = std::move(claims);
  const auto& user = input.pinned->role.pod_template;
  if (const auto* theirs = kube::object_at(user, {"spec"})) merge_into(spec, *theirs);
  enforce(input, spec);
  place(input, spec);
  pod.body["spec"] = std::move(spec);

  // Not before the spec is in: a new member of an object may move the others.
  auto& metadata = pod.body["metadata"].as_object();
  metadata["labels"] = json::Object{};
  metadata["annotations"] = json::Object{};
  for (const std::string_view part : {"labels", "annotations"}) {
    if (const auto* theirs = kube::object_at(user, {"metadata", part})) merge_into(metadata[part].as_object(), *theirs);
  }
  for (const auto& [name, value] : pod_labels(input)) metadata["labels"].as_object()[name] = value;
  if (const auto& networks = input.pinned->role.network.multus_networks; !networks.empty()) {
    std::string text;
    for (const auto& network : networks) text += (text.empty() ? "" : ",") + network;
    metadata["annotations"].as_object()["k8s.v1.cni.cncf.io/networks"] = text;
  }
  join_gang(input.gang, input.gang_request, input.rank, pod.body);
  return pod;
}

std::string model_path(const api::ModelSpec& model) {
  constexpr std::string_view file = "file://";
  if (model.uri.starts_with(file)) return model.uri.substr(file.size());
  if (model.uri.starts_with("pvc://")) {
    const auto slash = model.uri.find('/', 6);
    return model.mount.path + (slash == std::string::npos ? std::string() : model.uri.substr(slash));
  }
  return model.mount.path;
}

std::string gang_name(std::string_view group, std::uint64_t epoch) {
  return std::string(group) + "-" + to_base36(epoch);
}

}  // namespace penstock::ctl
