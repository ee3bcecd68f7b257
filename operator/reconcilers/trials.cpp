#include "operator/reconcilers/trials.hpp"

#include "operator/api/model_cache.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/types.hpp"

namespace penstock::ctl {

std::vector<kube::Write> try_worker(const api::LLMService& service, const ResolvedRole& role, const json::Object& data,
                                    const Topology& topology, const Capabilities& capabilities) {
  const auto pinned = read_pinned(data, service.meta);
  if (!pinned) return {};
  kube::ObjectMeta group;
  group.namespace_ = service.meta.namespace_;
  group.name = bounded_name({service.meta.name, role.spec.name, "trial"}, 52);
  group.labels.set(label::revision, role.revision);
  PodInput input;
  input.group = &group;
  input.pinned = &*pinned;
  input.live = &role.spec;
  input.gang = Gang::none;
  input.gang_request = {gang_name(group.name, 0), 1, &pinned->service.spec, &pinned->role, &topology, ""};
  input.topology = &topology;
  input.capabilities = &capabilities;
  input.cache_path = api::HostPathStorage().path;
  std::vector<kube::Write> out;
  out.emplace_back(kube::Create{kube::pods, service.meta.namespace_, worker_pod(input).body, kube::DryRun::yes});
  return out;
}

std::vector<kube::Write> try_router(const ServiceInput& input) {
  const auto& service = input.service->meta;
  const std::string name = bounded_name({service.name, "router", "trial"}, 52);
  Desired deployment = detail::router_deployment(input);
  deployment.body["metadata"].as_object()["name"] = name;
  const json::Object& pod_template = deployment.body.at("spec").at("template").as_object();
  json::Object pod = kube::make_object(kube::pods, {service.namespace_, name});
  for (const auto& [part, value] : pod_template.at("metadata").as_object()) {
    pod["metadata"].as_object()[part] = value;
  }
  json::Object spec = pod_template.at("spec").as_object();
  // The operator makes this account, after the trial if it is the first.
  const json::Value* account = spec.if_contains("serviceAccountName");
  if (account != nullptr && *account == json::Value(router_name(service.name))) spec.erase("serviceAccountName");
  pod["spec"] = std::move(spec);
  std::vector<kube::Write> out;
  out.emplace_back(kube::Create{kube::deployments, service.namespace_, std::move(deployment.body), kube::DryRun::yes});
  out.emplace_back(kube::Create{kube::pods, service.namespace_, std::move(pod), kube::DryRun::yes});
  return out;
}

}  // namespace penstock::ctl
