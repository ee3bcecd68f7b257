#include "operator/core/names.hpp"
#include "operator/core/objects/service_children.hpp"
#include "operator/core/objects/types.hpp"

namespace penstock::ctl::detail {
namespace {

json::Object port(int number) {
  return {{"port", number}, {"protocol", "TCP"}};
}

json::Object pods_of(const ServiceInput& input, std::string_view role_type) {
  return {{"podSelector", json::Object{{"matchLabels", selector_of(input, role_type)}}}};
}

}  // namespace

/// Control ports are for this service's routers, KV for its workers, admin pages and the public API for whoever the
/// cluster lets through.
std::vector<Desired> network_policies(const ServiceInput& input) {
  const std::string& name = input.service->meta.name;
  Desired workers = make_child(input, kube::network_policies, bounded_name({name, "workers"}, 63));
  json::Object worker_pods{
      {"matchLabels", json::Object{{label::service, label_value(name)}}},
      {"matchExpressions",
       json::Array{json::Object{{"key", label::role_type}, {"operator", "NotIn"}, {"values", json::Array{"router"}}}}}};
  json::Array ingress;
  ingress.push_back(
      json::Object{{"from", json::Array{pods_of(input, "router")}}, {"ports", json::Array{port(control_port)}}});
  // KV lanes use ports that UCX chooses; they stay between workers of the service.
  ingress.push_back(json::Object{{"from", json::Array{json::Object{{"podSelector", worker_pods}}}}});
  ingress.push_back(json::Object{{"ports", json::Array{port(admin_port)}}});
  workers.body["spec"] = json::Object{
      {"podSelector", worker_pods}, {"policyTypes", json::Array{"Ingress"}}, {"ingress", std::move(ingress)}};

  Desired router = make_child(input, kube::network_policies, router_name(name));
  json::Array open{json::Object{{"ports", json::Array{port(public_port), port(admin_port)}}}};
  router.body["spec"] = json::Object{{"podSelector", json::Object{{"matchLabels", selector_of(input, "router")}}},
                                     {"policyTypes", json::Array{"Ingress"}},
                                     {"ingress", std::move(open)}};
  std::vector<Desired> out;
  out.push_back(std::move(workers));
  out.push_back(std::move(router));
  return out;
}

std::vector<Desired> gateway_objects(const ServiceInput& input) {
  const auto& gateway = input.service->spec.routing.gateway;
  const std::string& name = input.service->meta.name;
  std::vector<Desired> out;
  if (gateway.http_route && input.capabilities->http_routes) {
    Desired route = make_child(input, kube::http_routes, public_name(name));
    json::Object parent{{"name", gateway.http_route->gateway_name}};
    if (!gateway.http_route->gateway_namespace.empty()) parent["namespace"] = gateway.http_route->gateway_namespace;
    json::Object backend{{"name", public_name(name)}, {"port", input.service->spec.routing.service.port}};
    // A stream may take as long as it takes.
    json::Object rule{
        {"backendRefs", json::Array{std::move(backend)}},
        {"timeouts", json::Object{{"request", "0s"}}},
        {"matches", json::Array{json::Object{{"path", json::Object{{"type", "PathPrefix"}, {"value", "/v1"}}}}}}};
    json::Object spec{{"parentRefs", json::Array{std::move(parent)}}, {"rules", json::Array{std::move(rule)}}};
    json::Array hostnames;
    for (const auto& host : gateway.http_route->hostnames) hostnames.emplace_back(host);
    if (!hostnames.empty()) spec["hostnames"] = std::move(hostnames);
    route.body["spec"] = std::move(spec);
    out.push_back(std::move(route));
  }
  if (gateway.inference_pool && input.capabilities->inference_pools) {
    Desired pool = make_child(input, kube::inference_pools, public_name(name));
    pool.body["spec"] =
        json::Object{{"selector", json::Object{{"matchLabels", selector_of(input, "router")}}},
                     {"targetPorts", json::Array{json::Object{{"number", public_port}}}},
                     {"endpointPickerRef",
                      json::Object{{"name", public_name(name)}, {"port", json::Object{{"number", public_port}}}}}};
    out.push_back(std::move(pool));
  }
  return out;
}

}  // namespace penstock::ctl::detail
