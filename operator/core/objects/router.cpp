#include "operator/api/names.hpp"
#include "operator/core/hash.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/merge.hpp"
#include "operator/core/objects/pod_parts.hpp"
#include "operator/core/objects/service_children.hpp"
#include "operator/core/objects/types.hpp"

namespace penstock::ctl::detail {
namespace {

constexpr std::string_view options_path = "/etc/penstock/router";
constexpr std::string_view api_keys_path = "/etc/penstock/api-keys";
constexpr std::string_view tls_path = "/etc/penstock/tls";

std::string_view policy_name(api::RoutingPolicy policy) {
  switch (policy) {
    case api::RoutingPolicy::kv_aware:
      return "kv-aware";
    case api::RoutingPolicy::least_load:
      return "least-load";
    case api::RoutingPolicy::round_robin:
      return "round-robin";
    case api::RoutingPolicy::random:
      return "random";
  }
  return "";
}

/// As the router's --tool-format has it; "" leaves it to the chat template.
std::string_view format_name(api::ToolFormat format) {
  switch (format) {
    case api::ToolFormat::automatic:
      return "";
    case api::ToolFormat::none:
      return "none";
    case api::ToolFormat::hermes:
      return "hermes";
    case api::ToolFormat::llama3_json:
      return "llama3_json";
    case api::ToolFormat::mistral:
      return "mistral";
    case api::ToolFormat::qwen3_coder:
      return "qwen3_coder";
  }
  return "";
}
std::string_view format_name(api::ReasoningFormat format) {
  switch (format) {
    case api::ReasoningFormat::automatic:
      return "";
    case api::ReasoningFormat::none:
      return "none";
    case api::ReasoningFormat::think:
      return "think";
  }
  return "";
}

/// YAML is a superset of JSON, so a JSON object is the options file; settings of the role win.
json::Object router_settings(const ServiceInput& input) {
  const auto& service = *input.service;
  const auto& security = service.spec.security;
  json::Object out;
  out["address"] = "0.0.0.0";
  out["port"] = public_port;
  out["admin-address"] = "0.0.0.0";
  out["admin-port"] = admin_port;
  out["policy"] = policy_name(service.spec.routing.policy);
  const auto tools = format_name(service.spec.routing.tool_format);
  const auto thoughts = format_name(service.spec.routing.reasoning_format);
  if (!tools.empty()) out["tool-format"] = json::Array{tools};
  if (!thoughts.empty()) out["reasoning-format"] = json::Array{thoughts};
  out["ticket-key-file"] = std::string(keys_path) + "/ticket.key";
  out["block-hash-key-file"] = std::string(keys_path) + "/block-hash.key";
  out["drain-grace"] = std::to_string(input.router->spec.drain_seconds) + "s";
  const std::string selector =
      std::string(label::service) + "=" + label_value(service.meta.name) + "," + std::string(label::leader) + "=true";
  out["discovery"] =
      json::Object{{"kubernetes", json::Object{{"namespace", service.meta.namespace_}, {"selector", selector}}}};
  if (security.api_keys_secret_ref) out["api-keys-file"] = std::string(api_keys_path) + "/keys.yaml";
  if (security.tls_secret_ref) {
    out["tls"] = json::Object{{"cert-file", std::string(tls_path) + "/tls.crt"},
                              {"key-file", std::string(tls_path) + "/tls.key"}};
  }
  if (security.worker_tls_secret_ref) {
    out["worker-tls"] = json::Object{{"cert-file", std::string(worker_tls_path) + "/tls.crt"},
                                     {"key-file", std::string(worker_tls_path) + "/tls.key"},
                                     {"ca-file", std::string(worker_tls_path) + "/ca.crt"},
                                     {"peer-name", worker_tls_name}};
  }
  if (!security.api_keys_secret_ref || !security.tls_secret_ref) out["insecure-plaintext"] = true;
  for (const auto& [name, value] : input.router->spec.settings) out[name] = value;
  return out;
}

struct Mount {
  std::string_view name, path;
  json::Object source;
};

std::vector<Mount> mounts(const ServiceInput& input) {
  const std::string& name = input.service->meta.name;
  const auto& security = input.service->spec.security;
  const auto secret = [](std::string_view of) {
    return json::Object{{"secret", json::Object{{"secretName", of}, {"defaultMode", 0440}}}};
  };
  std::vector<Mount> out;
  out.push_back({"keys", keys_path, secret(keys_name(name))});
  out.push_back({"options", options_path, {{"configMap", json::Object{{"name", router_name(name)}}}}});
  if (security.api_keys_secret_ref)
    out.push_back({"api-keys", api_keys_path, secret(security.api_keys_secret_ref->name)});
  if (security.tls_secret_ref) out.push_back({"tls", tls_path, secret(security.tls_secret_ref->name)});
  if (security.worker_tls_secret_ref) {
    out.push_back({"worker-tls", worker_tls_path, secret(security.worker_tls_secret_ref->name)});
  }
  return out;
}

json::Object probe(std::string_view path, int failures) {
  return {{"httpGet", json::Object{{"path", path}, {"port", admin_port}}},
          {"periodSeconds", 2},
          {"failureThreshold", failures},
          {"timeoutSeconds", 3}};
}

json::Object container(const ServiceInput& input) {
  json::Object out{{"name", "router"}, {"image", input.router_image}};
  out["args"] = json::Array{"--config=" + std::string(options_path) + "/router.yaml"};
  json::Array ports;
  ports.push_back(json::Object{{"name", "http"}, {"containerPort", public_port}, {"protocol", "TCP"}});
  ports.push_back(json::Object{{"name", "admin"}, {"containerPort", admin_port}, {"protocol", "TCP"}});
  out["ports"] = std::move(ports);
  out["readinessProbe"] = probe("/readyz", 2);
  out["livenessProbe"] = probe("/healthz", 15);
  out["lifecycle"] = json::Object{{"preStop", json::Object{{"sleep", json::Object{{"seconds", 3}}}}}};
  out["securityContext"] = container_security({});
  json::Array list;
  for (const auto& mount : mounts(input)) {
    list.push_back(json::Object{{"name", mount.name}, {"mountPath", mount.path}, {"readOnly", true}});
  }
  out["volumeMounts"] = std::move(list);
  return out;
}

}  // namespace

Desired router_options(const ServiceInput& input) {
  Desired out = make_child(input, kube::config_maps, router_name(input.service->meta.name));
  out.body["data"] = json::Object{{"router.yaml", canonical_json(router_settings(input)) + "\n"}};
  return out;
}

std::vector<Desired> router_rights(const ServiceInput& input) {
  const std::string name = router_name(input.service->meta.name);
  Desired account = make_child(input, kube::service_accounts, name);
  Desired role = make_child(input, rbac_roles, name);
  role.body["rules"] = json::Array{json::Object{{"apiGroups", json::Array{""}},
                                                {"resources", json::Array{"pods"}},
                                                {"verbs", json::Array{"get", "list", "watch"}}}};
  Desired binding = make_child(input, rbac_role_bindings, name);
  binding.body["roleRef"] = json::Object{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", name}};
  binding.body["subjects"] = json::Array{
      json::Object{{"kind", "ServiceAccount"}, {"name", name}, {"namespace", input.service->meta.namespace_}}};
  return {std::move(account), std::move(role), std::move(binding)};
}

Desired router_deployment(const ServiceInput& input) {
  const std::string name = router_name(input.service->meta.name);
  const auto& role = input.router->spec;
  Desired out = make_child(input, kube::deployments, name);
  json::Object pod;
  pod["serviceAccountName"] = name;
  pod["terminationGracePeriodSeconds"] = role.drain_seconds + 30;
  pod["securityContext"] = pod_security();
  pod["containers"] = json::Array{container(input)};
  json::Array list;
  for (auto& mount : mounts(input)) {
    mount.source["name"] = mount.name;
    list.push_back(std::move(mount.source));
  }
  pod["volumes"] = std::move(list);
  if (const auto* theirs = kube::object_at(role.pod_template, {"spec"})) merge_into(pod, *theirs);
  json::Object metadata;
  for (const std::string_view part : {"labels", "annotations"}) {
    metadata[part] = json::Object{};
    if (const auto* theirs = kube::object_at(role.pod_template, {"metadata", part})) metadata[part] = *theirs;
  }
  for (const auto& [key, value] : role_labels(input.service->meta.name, role))
    metadata["labels"].as_object()[key] = value;
  // Options are read at the start: other options are other pods.
  metadata["annotations"].as_object()["penstock.dev/options"] = short_hash(canonical_hash(router_settings(input)));
  json::Object spec;
  spec["replicas"] = role.replicas;
  spec["selector"] = json::Object{{"matchLabels", selector_of(input, "router")}};
  spec["strategy"] =
      json::Object{{"type", "RollingUpdate"}, {"rollingUpdate", json::Object{{"maxSurge", 1}, {"maxUnavailable", 0}}}};
  spec["template"] = json::Object{{"metadata", std::move(metadata)}, {"spec", std::move(pod)}};
  out.body["spec"] = std::move(spec);
  return out;
}

}  // namespace penstock::ctl::detail
