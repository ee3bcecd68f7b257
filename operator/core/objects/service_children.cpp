#include "operator/core/objects/service_children.hpp"

#include <algorithm>

#include "operator/api/types.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/types.hpp"

namespace penstock::ctl {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : digits[word >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string_view service_type(api::RouterServiceType type) {
  switch (type) {
    case api::RouterServiceType::cluster_ip:
      return "ClusterIP";
    case api::RouterServiceType::node_port:
      return "NodePort";
    case api::RouterServiceType::load_balancer:
      return "LoadBalancer";
  }
  return "";
}

Desired public_service(const ServiceInput& input) {
  const auto& wanted = input.service->spec.routing.service;
  Desired out = detail::make_child(input, kube::services, public_name(input.service->meta.name));
  json::Object port{{"name", "http"}, {"port", wanted.port}, {"targetPort", public_port}};
  out.body["spec"] = json::Object{{"type", service_type(wanted.type)},
                                  {"selector", detail::selector_of(input, "router")},
                                  {"ports", json::Array{std::move(port)}}};
  return out;
}

/// Ranks find their leader by name before anyone is ready. One for all groups of a service: a name is a pod's own, and
/// a Service for each group would cost the cluster a list of endpoints each. Of leaders alone, since nobody looks up
/// another rank, and with each pod that comes or gets ready the cluster writes the whole list again.
Desired gangs_service(const ServiceInput& input) {
  Desired out = detail::make_child(input, kube::services, gangs_name(input.service->meta.name));
  json::Object leaders = detail::selector_of(input, {});
  leaders[label::leader] = "true";
  out.body["spec"] = json::Object{{"clusterIP", "None"},
                                  {"publishNotReadyAddresses", true},
                                  {"selector", std::move(leaders)},
                                  {"ports", json::Array{json::Object{{"name", "control"}, {"port", control_port}}}}};
  return out;
}

Desired budget(const ServiceInput& input, std::string name, json::Object selector, std::string_view field, int value) {
  Desired out = detail::make_child(input, kube::disruption_budgets, std::move(name));
  out.body["spec"] = json::Object{{field, value}, {"selector", json::Object{{"matchLabels", std::move(selector)}}}};
  return out;
}

/// An eviction may take one group's worth of pods at a time. Pods have no scale subresource above them, so the API
/// accepts only a number here, which follows the groups that are wanted.
Desired worker_budget(const ServiceInput& input, const api::RoleSpec& role, std::int32_t groups) {
  json::Object selector{{label::service, label_value(input.service->meta.name)}, {label::role, role.name}};
  const std::int32_t stay = std::max(0, groups - 1) * role.group.size;
  return budget(input, bounded_name({input.service->meta.name, role.name}, 63), std::move(selector), "minAvailable",
                stay);
}

}  // namespace

namespace detail {

Desired make_child(const ServiceInput& input, const kube::ResourceType& type, std::string name) {
  Desired out{type, {input.service->meta.namespace_, std::move(name)}, {}};
  out.body = kube::make_object(type, out.key, service_labels(input.service->meta.name));
  return out;
}

json::Object selector_of(const ServiceInput& input, std::string_view role_type) {
  json::Object out{{label::service, label_value(input.service->meta.name)}};
  if (!role_type.empty()) out[label::role_type] = role_type;
  return out;
}

}  // namespace detail

std::vector<Desired> service_children(const ServiceInput& input) {
  std::vector<Desired> out = detail::router_rights(input);
  out.push_back(detail::router_options(input));
  out.push_back(public_service(input));
  if (input.has_gangs) out.push_back(gangs_service(input));
  for (auto& policy : detail::network_policies(input)) out.push_back(std::move(policy));
  const std::string router = router_name(input.service->meta.name);
  out.push_back(budget(input, router, detail::selector_of(input, "router"), "maxUnavailable", 1));
  for (const auto& [role, groups] : input.workers) out.push_back(worker_budget(input, *role, groups));
  for (auto& object : detail::gateway_objects(input)) out.push_back(std::move(object));
  // Last: it being there says that all before it were made.
  out.push_back(detail::router_deployment(input));
  for (auto& child : out) finish(child, api::llm_services, input.service->meta);
  return out;
}

kube::Create keys_secret(const api::LLMService& service, std::string_view ticket, std::string_view block_hash) {
  kube::Create out{kube::secrets, service.meta.namespace_, {}};
  const kube::Key key{service.meta.namespace_, keys_name(service.meta.name)};
  out.body = kube::make_object(kube::secrets, key, service_labels(service.meta.name));
  out.body["metadata"].as_object()["ownerReferences"] =
      json::Array{kube::controller_reference(api::llm_services, service.meta)};
  out.body["type"] = "Opaque";
  out.body["immutable"] = true;
  out.body["data"] = json::Object{{"ticket.key", base64(ticket)}, {"block-hash.key", base64(block_hash)}};
  return out;
}

std::string endpoint(const api::LLMService& service) {
  const std::string scheme = service.spec.security.tls_secret_ref ? "https://" : "http://";
  return scheme + public_name(service.meta.name) + "." + service.meta.namespace_ +
         ".svc:" + std::to_string(service.spec.routing.service.port) + "/v1";
}

}  // namespace penstock::ctl
