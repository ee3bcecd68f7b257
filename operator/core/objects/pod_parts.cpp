#include "operator/core/objects/pod_parts.hpp"

#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view compute_domain = "compute-domain";

json::Object mount(std::string_view name, std::string_view path, bool read_only) {
  json::Object out{{"name", name}, {"mountPath", path}};
  if (read_only) out["readOnly"] = true;
  return out;
}

json::Object secret_volume(std::string_view name, std::string_view secret) {
  return {{"name", name}, {"secret", json::Object{{"secretName", secret}, {"defaultMode", 0440}}}};
}

bool has_model_volume(const api::ModelSpec& model) {
  return !model.uri.starts_with("file://");
}

json::Object model_volume(const PodInput& input) {
  const auto& model = input.pinned->service.spec.model;
  json::Object volume{{"name", "model"}};
  if (model.uri.starts_with("pvc://")) {
    const auto slash = model.uri.find('/', 6);
    volume["persistentVolumeClaim"] = json::Object{{"claimName", model.uri.substr(6, slash - 6)}, {"readOnly", true}};
  } else if (model.uri.starts_with("oci://")) {
    volume["image"] = json::Object{{"reference", model.uri.substr(6)}, {"pullPolicy", "IfNotPresent"}};
  } else {
    volume["hostPath"] = json::Object{{"path", input.cache_path}, {"type", "Directory"}};
  }
  return volume;
}

json::Object leaders_of(const PodInput& input) {
  return {{"matchLabels",
           json::Object{{label::service, label_value(input.pinned->service.meta.name)}, {label::leader, "true"}}}};
}

json::Object& object_in(json::Object& object, std::string_view name) {
  auto& value = object[name];
  if (!value.is_object()) value = json::Object{};
  return value.get_object();
}

json::Array& array_in(json::Object& object, std::string_view name) {
  auto& value = object[name];
  if (!value.is_array()) value = json::Array{};
  return value.get_array();
}

/// Requirements are added to every term the user gave, since terms are alternatives.
void require_node(json::Object& spec, std::string_view label, const std::vector<std::string>& values) {
  json::Array wanted;
  for (const auto& value : values) wanted.emplace_back(value);
  json::Object expression{{"key", label}, {"operator", "In"}, {"values", std::move(wanted)}};
  auto& required = object_in(object_in(object_in(spec, "affinity"), "nodeAffinity"),
                             "requiredDuringSchedulingIgnoredDuringExecution");
  auto& terms = array_in(required, "nodeSelectorTerms");
  if (terms.empty()) terms.push_back(json::Object{});
  for (auto& term : terms) {
    if (auto* object = term.if_object()) array_in(*object, "matchExpressions").push_back(expression);
  }
}

}  // namespace

std::string claim_template_name(std::string_view group, std::string_view claim) {
  return bounded_name({group, claim}, 63);
}
std::string group_claim_name(std::string_view group, std::uint64_t epoch, std::string_view claim) {
  return bounded_name({gang_name(group, epoch), claim}, 63);
}
std::string compute_domain_claim(std::string_view gang) {
  return bounded_name({gang, "channel"}, 63);
}

json::Array volumes(const PodInput& input) {
  json::Array out;
  out.push_back(secret_volume("keys", keys_name(input.pinned->service.meta.name)));
  out.push_back(json::Object{
      {"name", "shm"},
      {"emptyDir", json::Object{{"medium", "Memory"}, {"sizeLimit", input.pinned->role.shared_memory.to_string()}}}});
  out.push_back(json::Object{{"name", "tmp"}, {"emptyDir", json::Object{}}});
  if (has_model_volume(input.pinned->service.spec.model)) out.push_back(model_volume(input));
  if (const auto& tls = input.pinned->service.spec.security.worker_tls_secret_ref) {
    out.push_back(secret_volume("worker-tls", tls->name));
  }
  return out;
}

json::Array volume_mounts(const PodInput& input) {
  json::Array out;
  out.push_back(mount("keys", keys_path, true));
  out.push_back(mount("shm", "/dev/shm", false));
  out.push_back(mount("tmp", "/tmp", false));
  const auto& model = input.pinned->service.spec.model;
  if (has_model_volume(model)) out.push_back(mount("model", model.mount.path, true));
  if (input.pinned->service.spec.security.worker_tls_secret_ref) {
    out.push_back(mount("worker-tls", worker_tls_path, true));
  }
  return out;
}

json::Object container_resources(const PodInput& input) {
  const auto& role = input.pinned->role;
  json::Object limits;
  const std::int32_t devices = role.accelerators.count.value_or(role.accelerators.claims.empty() ? 1 : 0);
  if (devices > 0) limits[role.accelerators.resource_name] = devices;
  if (role.network.rdma) limits[role.network.rdma->resource_name] = role.network.rdma->count;
  json::Object out;
  if (!limits.empty()) out["limits"] = std::move(limits);
  json::Array claims;
  for (const auto& claim : role.accelerators.claims) claims.push_back(json::Object{{"name", claim.name}});
  if (input.compute_domain) claims.push_back(json::Object{{"name", compute_domain}});
  if (!claims.empty()) out["claims"] = std::move(claims);
  return out;
}

json::Array pod_claims(const PodInput& input) {
  json::Array out;
  for (const auto& claim : input.pinned->role.accelerators.claims) {
    json::Object entry{{"name", claim.name}};
    if (claim.scope == api::ClaimScope::group) {
      entry["resourceClaimName"] = group_claim_name(input.group->name, input.epoch, claim.name);
    } else {
      entry["resourceClaimTemplateName"] = claim_template_name(input.group->name, claim.name);
    }
    out.push_back(std::move(entry));
  }
  if (input.compute_domain) {
    const std::string channel = compute_domain_claim(gang_name(input.group->name, input.epoch));
    out.push_back(json::Object{{"name", compute_domain}, {"resourceClaimTemplateName", channel}});
  }
  return out;
}

json::Object pod_security() {
  return {{"runAsNonRoot", true},
          {"runAsUser", 65532},
          {"fsGroup", 65532},
          {"seccompProfile", json::Object{{"type", "RuntimeDefault"}}}};
}

json::Object container_security(const api::RoleSpec& role) {
  json::Object capabilities{{"drop", json::Array{"ALL"}}};
  if (role.network.rdma) capabilities["add"] = json::Array{"IPC_LOCK"};  // pinned memory
  return {
      {"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", std::move(capabilities)}};
}

void place(const PodInput& input, json::Object& spec) {
  const auto& placement = input.pinned->role.placement;
  const auto& together = input.pinned->service.spec.placement.co_locate;
  if (!input.cache_hosts.empty()) require_node(spec, api::host_label, input.cache_hosts);
  if (!input.together_domain.empty()) require_node(spec, input.together_domain, {input.together_value});
  if (input.rank != 0) return;  // the others follow the leader by the gang's own constraint
  if (!placement.exclusive.empty()) {
    json::Object term{{"labelSelector", leaders_of(input)},
                      {"topologyKey", input.topology->label_of(placement.exclusive)}};
    array_in(object_in(object_in(spec, "affinity"), "podAntiAffinity"),
             "requiredDuringSchedulingIgnoredDuringExecution")
        .push_back(std::move(term));
  }
  if (together && together->enforcement == api::Enforcement::preferred) {
    json::Object term{{"labelSelector", leaders_of(input)},
                      {"topologyKey", input.topology->label_of(together->domain)}};
    array_in(object_in(object_in(spec, "affinity"), "podAffinity"), "preferredDuringSchedulingIgnoredDuringExecution")
        .push_back(json::Object{{"weight", 100}, {"podAffinityTerm", std::move(term)}});
  }
  if (const auto& spread = input.live->placement.spread) {
    json::Object selector = leaders_of(input);
    selector["matchLabels"].as_object()[label::role] = input.pinned->role.name;
    const bool soft = spread->when == api::WhenUnsatisfiable::schedule_anyway;
    array_in(spec, "topologySpreadConstraints")
        .push_back(json::Object{{"maxSkew", spread->max_skew},
                                {"topologyKey", input.topology->label_of(spread->domain)},
                                {"whenUnsatisfiable", soft ? "ScheduleAnyway" : "DoNotSchedule"},
                                {"labelSelector", std::move(selector)}});
  }
}

}  // namespace penstock::ctl
