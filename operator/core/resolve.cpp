#include "operator/core/resolve.hpp"

#include "operator/core/hash.hpp"
#include "operator/core/names.hpp"

namespace penstock::ctl {
namespace {

/// What differs from `defaults`. A field that a later version adds with a default is then no change.
json::Object without_defaults(const json::Object& object, const json::Object& defaults) {
  json::Object out;
  for (const auto& [name, value] : object) {
    const auto* other = defaults.if_contains(name);
    if (other != nullptr && value == *other) continue;
    if (other != nullptr && value.is_object() && other->is_object()) {
      out[name] = without_defaults(value.get_object(), other->get_object());
    } else {
      out[name] = value;
    }
  }
  return out;
}

/// Only what reaches the pods of the role: no counts, budgets, drain, spread.
api::RoleSpec pod_part(api::RoleSpec role) {
  const api::RoleSpec plain;
  role.replicas = plain.replicas;
  role.scaling = plain.scaling;
  role.drain_seconds = plain.drain_seconds;
  role.startup_seconds = plain.startup_seconds;
  role.placement.spread.reset();
  role.group.node_lost_seconds = plain.group.node_lost_seconds;
  const auto in_place = role.group.restart.in_place;
  // The effective policy decides the pods' restartPolicy.
  const auto policy = restart_policy(role);
  role.group.restart = plain.group.restart;
  role.group.restart.in_place = in_place;
  if (role.type != api::RoleType::router) role.group.restart.policy = policy;
  return role;
}

json::Object pinned_spec(const api::LLMServiceSpec& whole, const api::RoleSpec& role) {
  const bool router = role.type == api::RoleType::router;
  api::LLMServiceSpec spec;
  spec.model = whole.model;
  spec.model.strict_revision = false;
  if (!router) spec.model.aliases.clear();
  spec.security = whole.security;
  if (!router) {
    spec.security.api_keys_secret_ref.reset();
    spec.security.tls_secret_ref.reset();
  }
  spec.placement = whole.placement;
  spec.scheduling = whole.scheduling;
  spec.scheduling.backend = api::SchedulingBackend::automatic;  // which one serves is the cluster's affair
  if (router) {
    spec.routing.policy = whole.routing.policy;
    spec.routing.tool_format = whole.routing.tool_format;
    spec.routing.reasoning_format = whole.routing.reasoning_format;
    spec.placement = {};
  }
  static const json::Object plain_spec = api::to_json(api::LLMServiceSpec{}),
                            plain_role = api::to_json(api::RoleSpec{});
  json::Object out = without_defaults(api::to_json(spec), plain_spec);
  json::Object one = without_defaults(api::to_json(pod_part(role)), plain_role);
  one["name"] = role.name;
  one["type"] = api::to_json(role).at("type");
  out["roles"] = json::Array{std::move(one)};
  return out;
}

ResolvedRole resolve_role(const api::LLMServiceSpec& spec, const api::RoleSpec& role) {
  ResolvedRole out;
  out.spec = role;
  out.data["spec"] = pinned_spec(spec, role);
  out.hash = canonical_hash(out.data);
  return out;
}

void finish(ResolvedRole& role, const std::string& pairing) {
  if (is_paired(role.spec.type)) {
    role.pairing = pairing;
    role.data["pairing"] = pairing;
    role.hash = canonical_hash(role.data);
  }
  role.revision = short_hash(role.hash);
}

}  // namespace

ResolvedService resolve(const api::LLMService& service) {
  ResolvedService out;
  api::RoleSpec router;
  router.name = "router";
  router.type = api::RoleType::router;
  json::Array paired, all;
  for (const auto& role : service.spec.roles) {
    if (role.type == api::RoleType::router) {
      router = role;
      continue;
    }
    out.workers.push_back(resolve_role(service.spec, role));
    if (is_paired(role.type)) paired.emplace_back(out.workers.back().hash);
  }
  out.router = resolve_role(service.spec, router);
  const std::string& key = service.spec.rollout.compatibility_key;
  // The user's key is hashed, since it may be anything and must be a label.
  const std::string pairing = short_hash(key.empty() ? canonical_hash(paired) : canonical_hash(json::Value(key)));
  for (auto& role : out.workers) {
    finish(role, pairing);
    all.emplace_back(role.hash);
  }
  finish(out.router, pairing);
  all.emplace_back(out.router.hash);
  out.revision = short_hash(canonical_hash(all));
  return out;
}

Result<PinnedRole> read_pinned(const json::Object& data, const kube::ObjectMeta& service) {
  const auto* spec = kube::object_at(data, {"spec"});
  if (spec == nullptr) return make_error(ErrorCode::data_loss, "the revision has no spec");
  json::Object whole{{"metadata", {{"name", service.name}, {"namespace", service.namespace_}, {"uid", service.uid}}}};
  whole["spec"] = *spec;
  PinnedRole pinned;
  PENSTOCK_TRY(pinned.service, api::parse_llm_service(json::Value(std::move(whole))));
  if (pinned.service.spec.roles.size() != 1) return make_error(ErrorCode::data_loss, "the revision has no role");
  pinned.role = pinned.service.spec.roles.front();
  pinned.pairing = kube::text_at(data, {"pairing"}).value_or("");
  pinned.image = kube::text_at(data, {"image"}).value_or("");
  return pinned;
}

api::RestartPolicy restart_policy(const api::RoleSpec& role) {
  return role.group.restart.policy.value_or(role.group.size > 1 ? api::RestartPolicy::group : api::RestartPolicy::pod);
}

std::int32_t gpus_a_pod(const api::RoleSpec& role) {
  if (!role.accelerators.claims.empty()) {
    std::int32_t count = 0;
    for (const auto& claim : role.accelerators.claims) {
      if (claim.scope == api::ClaimScope::pod) count += claim.count;
    }
    return count;
  }
  return role.accelerators.count.value_or(1);
}

std::string_view role_type_label(api::RoleType type) {
  switch (type) {
    case api::RoleType::router:
      return "router";
    case api::RoleType::unified:
      return "unified";
    case api::RoleType::prefill:
      return "prefill";
    case api::RoleType::decode:
      return "decode";
    case api::RoleType::encode:
      return "encode";
  }
  return "";
}

bool is_paired(api::RoleType type) {
  switch (type) {
    case api::RoleType::router:
    case api::RoleType::unified:
      return false;
    case api::RoleType::prefill:
    case api::RoleType::decode:
    case api::RoleType::encode:
      return true;
  }
  return false;
}

}  // namespace penstock::ctl
