#include "operator/core/group.hpp"

#include <algorithm>

#include "common/kube/model/known_types.hpp"
#include "operator/api/types.hpp"
#include "operator/core/cache.hpp"
#include "operator/core/gang/gang.hpp"
#include "operator/core/objects/pod.hpp"
#include "operator/reconcilers/together.hpp"
#include "operator/reconcilers/writes.hpp"

namespace penstock::ctl {
namespace {

// The pods of a gang change together. Among many groups one look more or less at each is what costs.
constexpr Duration rest_min = std::chrono::milliseconds(200), rest_max = std::chrono::seconds(1),
                   rest_a_group = std::chrono::milliseconds(2);

const api::LLMService* service_of(const api::WorkerGroup& group, const Stores& stores) {
  const auto* service = stores.services.find({group.meta.namespace_, group.spec.service_name});
  if (service == nullptr || !group.meta.controller || group.meta.controller->uid != service->meta.uid) return nullptr;
  return service;
}

/// Pods whose node has been away for longer than the role bears.
std::vector<const Pod*> on_lost_nodes(const std::vector<const Pod*>& pods, const Stores& stores, const Context& context,
                                      const api::RoleSpec& role, std::optional<Duration>& look_again) {
  std::vector<const Pod*> lost;
  if (!stores.nodes.synced()) return lost;  // absence means nothing yet
  for (const auto* pod : pods) {
    if (!pod->bound()) continue;
    const auto* node = stores.nodes.find({"", pod->node});
    if (node == nullptr) {
      lost.push_back(pod);
      continue;
    }
    if (node->ready) continue;
    const std::int64_t left = node->ready_changed.unix_s() + role.group.node_lost_seconds - context.now.unix_s();
    if (left <= 0) {
      lost.push_back(pod);
    } else {
      const Duration wait = std::chrono::seconds(left + 1);
      look_again = std::min(look_again.value_or(wait), wait);
    }
  }
  return lost;
}

void use_cache(const PinnedRole& pinned, const Stores& stores, PodInput& input) {
  const auto& ref = pinned.service.spec.model.cache_ref;
  if (!ref) return;
  const auto* cache = stores.caches.find({pinned.service.meta.namespace_, ref->name});
  if (cache == nullptr) return;
  input.cache_path = cache_folder(*cache);
  for (const auto* state : stores.node_caches.all()) {
    for (const auto& entry : state->status.entries) {
      if (entry.cache == cache_id(cache->meta) && entry.state == api::CacheState::ready) {
        input.cache_hosts.push_back(state->meta.name);
      }
    }
  }
}

api::RoleSpec with_live_numbers(api::RoleSpec role, const api::LLMService& service) {
  for (const auto& live : service.spec.roles) {
    if (live.name != role.name) continue;
    role.drain_seconds = live.drain_seconds;
    role.startup_seconds = live.startup_seconds;
    role.placement.spread = live.placement.spread;
    role.group.node_lost_seconds = live.group.node_lost_seconds;
    const auto policy = role.group.restart.policy;
    const auto in_place = role.group.restart.in_place;
    role.group.restart = live.group.restart;
    role.group.restart.policy = policy;
    role.group.restart.in_place = in_place;
  }
  return role;
}

/// A domain of an ended epoch, or of a group that is going, may go once no pod refers to it.
void release_domains(Outcome& out, const api::WorkerGroup& group, const Stores& stores,
                     const std::vector<const Pod*>& pods) {
  const auto* domains = stores.children_of(kube::compute_domains);
  if (domains == nullptr) return;
  for (const auto* domain : domains->owned_by(group.meta.uid)) {
    const auto epoch = domain->meta.labels.get(label::epoch);
    const bool used = std::any_of(pods.begin(), pods.end(),
                                  [&](const Pod* pod) { return pod->meta.labels.get(label::epoch) == epoch; });
    if (!domain->meta.deleted || used || domain->meta.finalizers.empty()) continue;
    json::Array kept;
    for (const auto& finalizer : domain->meta.finalizers) {
      if (finalizer != cleanup_finalizer) kept.emplace_back(finalizer);
    }
    if (kept.size() == domain->meta.finalizers.size()) continue;  // only others are left
    kube::Patch patch{kube::compute_domains,     domain->meta.key(), "", kube::PatchKind::merge, {}, {},
                      std::string(field_manager)};
    patch.body = json::Object{{"metadata", json::Object{{"finalizers", std::move(kept)}}}};
    patch.preconditions = {domain->meta.uid, domain->meta.resource_version};
    out.writes.emplace_back(std::move(patch));
  }
}

void let_go(Outcome& out, const Pod& pod, const PodInput& input, const std::string& domain) {
  // The test at the head makes sure that the gate at this index is ours.
  const std::string gate = "/spec/schedulingGates/" + std::to_string(pod.gate_index);
  json::Array operations;
  operations.push_back(json::Object{{"op", "test"}, {"path", gate + "/name"}, {"value", scheduling_gate}});
  const std::string_view node_label = input.topology->label_of(input.gang_request.pack);
  if (!node_label.empty() && !domain.empty()) {
    std::string pointer = "/spec/nodeSelector/";
    for (const char letter : node_label) pointer += letter == '/' ? std::string("~1") : std::string(1, letter);
    operations.push_back(json::Object{{"op", "add"}, {"path", pointer}, {"value", domain}});
  }
  operations.push_back(json::Object{{"op", "remove"}, {"path", gate}});
  kube::Patch patch{
      kube::pods, pod.meta.key(), "", kube::PatchKind::json, std::move(operations), {}, std::string(field_manager)};
  patch.preconditions.uid = pod.meta.uid;
  out.writes.emplace_back(std::move(patch));
}

/// Copies the node's domains to the leader pod, where the router finds them: it may read pods, not nodes. Only of roles
/// that hand KV to each other; for others nobody asks.
void label_leader(Outcome& out, const std::vector<const Pod*>& pods, const Stores& stores, const Topology& topology) {
  for (const auto* pod : pods) {
    if (pod->meta.labels.get(label::leader) != "true" || !pod->bound() || pod->lost()) continue;
    const auto* node = stores.nodes.find({"", pod->node});
    if (node == nullptr) continue;
    json::Object labels;
    for (const auto& level : topology.levels) {
      const auto value = node->meta.labels.find(level.node_label);
      const std::string name = topology_label(level.domain);
      if (value && pod->meta.labels.find(name) != value) labels[name] = *value;
    }
    if (labels.empty()) continue;
    kube::Patch patch{kube::pods, pod->meta.key(), "", kube::PatchKind::merge, {}, {}, std::string(field_manager)};
    patch.body = json::Object{{"metadata", json::Object{{"labels", std::move(labels)}}}};
    patch.preconditions.uid = pod->meta.uid;
    out.writes.emplace_back(std::move(patch));
  }
}

/// Children of this epoch are made, those of others go.
void write_children(Outcome& out, const api::WorkerGroup& group, const Stores& stores, const PodInput& input) {
  auto children = group_children(input);
  for (auto& child : children) finish(child, api::worker_groups, group.meta);
  for (const auto& child : children) write_child(out, stores, child);
  for (const auto& type : {kube::pod_groups, kube::kai_pod_groups, kube::volcano_pod_groups, kube::resource_claims,
                           kube::resource_claim_templates, kube::compute_domains}) {
    prune(out, stores, type, group.meta.uid, children);
  }
}

void write_pods(Outcome& out, const GroupPlan& plan, const api::WorkerGroup& group, const PodInput& input,
                const std::string& domain) {
  for (const auto* pod : plan.remove) write_delete(out, kube::pods, pod->meta);
  for (const auto* pod : plan.let_go) let_go(out, *pod, input, domain);
  for (const std::uint32_t rank : plan.create) {
    PodInput one = input;
    one.rank = rank;
    Desired pod = worker_pod(one);
    own(pod, api::worker_groups, group.meta);
    out.writes.emplace_back(kube::Create{kube::pods, group.meta.namespace_, std::move(pod.body)});
  }
}

}  // namespace

Outcome reconcile_group(const kube::Key& key, const Stores& stores, const Context& context) {
  Outcome out;
  const auto* group = stores.groups.find(key);
  if (group == nullptr) return out;
  std::vector<const Pod*> pods;
  for (const auto* pod : stores.pods.owned_by(group->meta.uid)) pods.push_back(pod);
  release_domains(out, *group, stores, pods);
  if (group->meta.deleted) return out;  // the collector takes the rest; nothing is made any more
  const auto* service = service_of(*group, stores);
  if (service == nullptr || service->meta.deleted) return out;  // going with its owner
  const auto* revision = revision_of(*group, stores);
  if (revision == nullptr) return out;  // it will come, or the service drains the group
  const PinnedRole* pinned = revision->pinned.get();
  if (pinned == nullptr) return out;

  const auto* cluster = stores.topologies.find({"", pinned->service.spec.placement.topology_ref.name});
  const Topology topology = topology_of(cluster);
  const api::RoleSpec role = with_live_numbers(pinned->role, *service);
  const Gang gang = choose_gang(service->spec.scheduling.backend, context.capabilities).gang;

  GroupInput input;
  input.group = group;
  input.role = &role;
  input.pods = pods;
  std::optional<Duration> node_wait;
  input.on_lost_nodes = on_lost_nodes(pods, stores, context, role, node_wait);
  input.ladder = prefers_by_itself(gang) || role.group.size < 2
                     ? std::vector<std::string>{pack_ladder(role, topology).back()}
                     : pack_ladder(role, topology);
  input.leader_first = gang == Gang::none;
  input.domain = domain_of(pods, stores, topology.label_of(group->status.pack_domain));
  const Problem refusal = refusal_of(context);
  input.refusal = refusal.message;
  input.refusal_reason = refusal.reason;
  const Together together = find_together(*pinned, *group, pods, topology, stores);
  input.no_room = together.no_room;
  input.fleet = stores.groups.size();
  input.now = context.now;
  out.rest = std::clamp<Duration>(rest_a_group * input.fleet, rest_min, rest_max);
  GroupPlan plan = plan_group(input);

  if (!plan.hold_status && plan.status != group->status) {
    write_status(out, api::worker_groups, group->meta, api::to_json(group->status), api::to_json(plan.status));
  }
  // Beside the status that says so: what comes after may be refused, and the next look sees nothing new.
  for (const auto& notice : plan.notices) write_event(out, api::worker_groups, group->meta, notice);
  PodInput pod;
  pod.group = &group->meta;
  pod.pinned = pinned;
  pod.live = &role;
  pod.epoch = plan.epoch;
  pod.gang = gang;
  pod.gang_request = {gang_name(group->meta.name, plan.epoch),
                      static_cast<std::uint32_t>(role.group.size),
                      &pinned->service.spec,
                      &role,
                      &topology,
                      plan.pack};
  pod.topology = &topology;
  pod.capabilities = &context.capabilities;
  pod.compute_domain =
      context.capabilities.compute_domains && needs_compute_domain(pinned->service.spec, role, topology);
  pod.together_domain = together.node_label;
  pod.together_value = together.value;
  use_cache(*pinned, stores, pod);
  if (plan.state != GroupState::draining) write_children(out, *group, stores, pod);
  write_pods(out, plan, *group, pod, input.domain);
  if (is_paired(role.type)) label_leader(out, pods, stores, topology);
  if (plan.delete_group) write_delete(out, api::worker_groups, group->meta);
  out.requeue_after = plan.look_again;
  if (plan.hold_status) out.requeue_after = std::min(out.requeue_after.value_or(*plan.hold_status), *plan.hold_status);
  if (node_wait) out.requeue_after = std::min(out.requeue_after.value_or(*node_wait), *node_wait);
  return out;
}

}  // namespace penstock::ctl
