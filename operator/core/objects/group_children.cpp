#include "common/kube/model/known_types.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/pod.hpp"
#include "operator/core/objects/pod_parts.hpp"

namespace penstock::ctl {
namespace {

Desired make(const PodInput& input, const kube::ResourceType& type, std::string name, json::Object spec) {
  Desired out{type, {input.group->namespace_, std::move(name)}, {}};
  kube::StringMap labels = role_labels(input.pinned->service.meta.name, input.pinned->role);
  labels.set(label::group, input.group->name);
  labels.set(label::epoch, std::to_string(input.epoch));
  out.body = kube::make_object(type, out.key, labels);
  out.body["spec"] = std::move(spec);
  return out;
}

json::Object claim_spec(const api::DeviceClaim& claim) {
  json::Object exactly{
      {"deviceClassName", claim.device_class_name}, {"allocationMode", "ExactCount"}, {"count", claim.count}};
  json::Array selectors;
  for (const auto& expression : claim.selectors) {
    selectors.push_back(json::Object{{"cel", json::Object{{"expression", expression}}}});
  }
  if (!selectors.empty()) exactly["selectors"] = std::move(selectors);
  json::Object request{{"name", claim.name}, {"exactly", std::move(exactly)}};
  return {{"devices", json::Object{{"requests", json::Array{std::move(request)}}}}};
}

void add_claims(const PodInput& input, std::vector<Desired>& out) {
  for (const auto& claim : input.pinned->role.accelerators.claims) {
    if (claim.scope == api::ClaimScope::group) {
      out.push_back(make(input, kube::resource_claims, group_claim_name(input.group->name, input.epoch, claim.name),
                         claim_spec(claim)));
    } else {
      out.push_back(make(input, kube::resource_claim_templates, claim_template_name(input.group->name, claim.name),
                         json::Object{{"spec", claim_spec(claim)}}));
    }
  }
}

}  // namespace

std::vector<Desired> group_children(const PodInput& input) {
  std::vector<Desired> out;
  add_claims(input, out);
  const std::string gang = gang_name(input.group->name, input.epoch);
  if (input.compute_domain) {
    json::Object channel{{"resourceClaimTemplate", json::Object{{"name", compute_domain_claim(gang)}}}};
    // The finalizer keeps the domain until its pods are gone: the driver hangs them otherwise.
    Desired domain =
        make(input, kube::compute_domains, gang, json::Object{{"numNodes", 0}, {"channel", std::move(channel)}});
    domain.body["metadata"].as_object()["finalizers"] = json::Array{cleanup_finalizer};
    out.push_back(std::move(domain));
  }
  if (auto object = gang_object(input.gang, input.gang_request)) {
    out.push_back(make(input, object->type, gang, std::move(object->spec)));
  }
  return out;
}

}  // namespace penstock::ctl
