// The reconciles that only report, or pass a wish on: scaler, caches, adapter, topology.
#include <algorithm>
#include <set>

#include "operator/api/types.hpp"
#include "operator/core/cache.hpp"
#include "operator/core/objects/common.hpp"
#include "operator/core/resolve.hpp"
#include "operator/reconcilers/scaling.hpp"
#include "operator/reconcilers/writes.hpp"

namespace penstock::ctl {
namespace {

void set(kube::Conditions& conditions, const kube::ObjectMeta& meta, kube::Timestamp now, std::string_view type,
         kube::ConditionStatus status, std::string_view reason, std::string message) {
  kube::Condition condition;
  condition.type = type;
  condition.status = status;
  condition.reason = reason;
  condition.message = std::move(message);
  condition.observed_generation = meta.generation;
  kube::set_condition(conditions, std::move(condition), now);
}

kube::ConditionStatus is(bool yes) {
  return yes ? kube::ConditionStatus::yes : kube::ConditionStatus::no;
}

std::string share(std::int32_t some, std::int32_t all, std::string_view what) {
  return std::to_string(some) + " of " + std::to_string(all) + " " + std::string(what);
}

}  // namespace

Outcome reconcile_scaler(const kube::Key& key, const Stores& stores, const Context& context) {
  Outcome out;
  const auto* scaler = stores.scalers.find(key);
  if (scaler == nullptr || scaler->meta.deleted) return out;
  api::RoleScalerStatus status = scaler->status;
  status.replicas = status.ready_replicas = 0;
  const auto* service = stores.services.find({key.namespace_, scaler->spec.service_name});
  const api::RoleSpec* role = nullptr;
  if (service != nullptr) {
    for (const auto& one : service->spec.roles) {
      if (one.name == scaler->spec.role) role = &one;
    }
    for (const auto* group : stores.groups.owned_by(service->meta.uid)) {
      if (group->spec.role != scaler->spec.role || group->meta.deleted || drain_deadline(group->meta)) continue;
      ++status.replicas;
      status.ready_replicas += kube::is_true(group->status.conditions, "Ready");
    }
  }
  // Leaders of every revision: an autoscaler that averages over these averages over groups.
  status.selector = std::string(label::service) + "=" + label_value(scaler->spec.service_name) + "," +
                    std::string(label::role) + "=" + scaler->spec.role + "," + std::string(label::leader) + "=true";
  if (status.observed_generation != 0 && status.observed_generation != scaler->meta.generation) {
    status.last_scale_time = context.now;
  }
  status.observed_generation = scaler->meta.generation;
  const bool active = role != nullptr && role->scaling.mode != api::ScalingMode::fixed;
  set(status.conditions, scaler->meta, context.now, "Active", is(active), active ? "Scaling" : "RoleNotScaled",
      active ? ""
             : "the role isn't in the service, or its scaling.mode is Fixed. Delete this object, or change the mode.");
  write_status(out, api::role_scalers, scaler->meta, api::to_json(scaler->status), api::to_json(status));
  return out;
}

Outcome reconcile_cache(const kube::Key& key, const Stores& stores, const Context& context) {
  Outcome out;
  const auto* cache = stores.caches.find(key);
  if (cache == nullptr || cache->meta.deleted) return out;
  const std::string id = cache_id(cache->meta);
  const auto wanted = nodes_for(*cache, stores.nodes.all(), stores.node_caches.all());
  const std::set<std::string> names(wanted.begin(), wanted.end());
  api::ModelCacheStatus status = cache->status;
  status.observed_generation = cache->meta.generation;
  status.nodes_wanted = static_cast<std::int32_t>(wanted.size());
  status.nodes_ready = status.nodes_failed = 0;
  std::string trouble;
  for (const auto* state : stores.node_caches.all()) {
    for (const auto& entry : state->status.entries) {
      if (entry.cache != id || !names.contains(state->meta.name)) continue;
      if (entry.state == api::CacheState::ready) {
        ++status.nodes_ready;
        status.digest = entry.digest;
        status.bytes = entry.bytes;
      } else if (entry.state == api::CacheState::failed) {
        ++status.nodes_failed;
        trouble = state->meta.name + ": " + entry.message;
      }
    }
  }
  // Weights in a volume or an image need no copies of ours.
  const bool no_copies = cache->spec.storage.pvc || cache->spec.storage.image_volume;
  const bool ready = no_copies || (status.nodes_ready > 0 && status.nodes_ready >= status.nodes_wanted);
  const std::string_view reason = ready                     ? "Present"
                                  : status.nodes_failed > 0 ? "DownloadFailed"
                                  : wanted.empty()          ? "NoNodeMatches"
                                                            : "Downloading";
  std::string message = share(status.nodes_ready, status.nodes_wanted, "nodes have it");
  if (!trouble.empty()) message += "; " + trouble;
  if (wanted.empty() && !no_copies) message = "no node matches spec.nodeSelector. Label nodes, or change the selector.";
  set(status.conditions, cache->meta, context.now, "Ready", is(ready), reason, std::move(message));
  write_status(out, api::model_caches, cache->meta, api::to_json(cache->status), api::to_json(status));
  return out;
}

namespace {

/// Caches that pods on this node mount. Their ModelCache may be gone, or want other nodes now: the agent must not
/// remove what is in use.
void add_used(const std::string& node, const Stores& stores, std::vector<std::string>& caches) {
  for (const auto* pod : stores.pods.all()) {
    if (pod->node != node || pod->phase == PodPhase::succeeded || pod->phase == PodPhase::failed) continue;
    const auto* group = stores.groups.find({pod->meta.namespace_, std::string(pod->meta.labels.get(label::group))});
    const auto* revision = group == nullptr ? nullptr : revision_of(*group, stores);
    const auto* pinned = revision == nullptr ? nullptr : revision->pinned.get();
    if (pinned == nullptr || !pinned->service.spec.model.cache_ref) continue;
    caches.push_back(pod->meta.namespace_ + "/" + pinned->service.spec.model.cache_ref->name);
  }
}

}  // namespace

Outcome reconcile_node_cache(const kube::Key& key, const Stores& stores, const Context&) {
  Outcome out;
  const auto* node = stores.nodes.find({"", key.name});
  if (node == nullptr || node->meta.deleted) return out;  // its object is owned by it and goes with it
  api::NodeModelCacheSpec spec;
  spec.node_name = key.name;
  for (const auto* cache : stores.caches.all()) {
    if (cache->meta.deleted || cache->spec.storage.pvc || cache->spec.storage.image_volume) continue;
    const auto nodes = nodes_for(*cache, stores.nodes.all(), stores.node_caches.all());
    if (std::find(nodes.begin(), nodes.end(), key.name) != nodes.end()) spec.caches.push_back(cache_id(cache->meta));
  }
  add_used(key.name, stores, spec.caches);
  std::sort(spec.caches.begin(), spec.caches.end());
  spec.caches.erase(std::unique(spec.caches.begin(), spec.caches.end()), spec.caches.end());
  const auto* existing = stores.node_caches.find({"", key.name});
  if (existing == nullptr && spec.caches.empty()) return out;
  if (existing != nullptr && existing->spec.caches == spec.caches && existing->spec.node_name == spec.node_name)
    return out;
  Desired desired{api::node_model_caches, {"", key.name}, {}};
  desired.body = kube::make_object(desired.type, desired.key, {{label::managed_by, label::managed_by_value}});
  desired.body["spec"] = api::to_json(spec);
  finish(desired, kube::nodes, node->meta);
  out.writes.push_back(apply(std::move(desired), existing == nullptr ? nullptr : &existing->meta));
  return out;
}

Outcome reconcile_adapter(const kube::Key& key, const Stores& stores, const Context& context) {
  Outcome out;
  const auto* adapter = stores.adapters.find(key);
  if (adapter == nullptr || adapter->meta.deleted) return out;
  api::ModelAdapterStatus status = adapter->status;
  status.observed_generation = adapter->meta.generation;
  status.endpoints_wanted = 0;
  const auto* service = stores.services.find({key.namespace_, adapter->spec.service_name});
  std::int32_t capable = 0;
  if (service != nullptr) {
    for (const auto& role : service->spec.roles) {
      if (role.lora.max_adapters == 0 || role.lora.max_rank < adapter->spec.rank) continue;
      ++capable;
      std::int32_t groups = 0;
      for (const auto* group : stores.groups.owned_by(service->meta.uid)) {
        groups += group->spec.role == role.name && !group->meta.deleted && !drain_deadline(group->meta);
      }
      status.endpoints_wanted += std::min(groups, adapter->spec.placement.count.value_or(groups));
    }
  }
  const auto say = [&](kube::ConditionStatus is_ready, std::string_view reason, std::string message) {
    set(status.conditions, adapter->meta, context.now, "Ready", is_ready, reason, std::move(message));
  };
  if (service == nullptr) {
    say(is(false), "ServiceNotFound",
        "there is no LLMService " + adapter->spec.service_name + " in this namespace. Create it.");
  } else if (capable == 0) {
    say(is(false), "NoCapableRole",
        "no role has lora.maxAdapters above 0 and lora.maxRank of at least " + std::to_string(adapter->spec.rank) +
            ". Raise them.");
  } else if (status.endpoints_loaded >= status.endpoints_wanted && status.endpoints_wanted > 0) {
    say(is(true), "Loaded", share(status.endpoints_loaded, status.endpoints_wanted, "groups have it"));
  } else if (status.endpoints_loaded == 0) {
    // Nobody reports, since no engine of ours has anything to report: said by name, not as a wait without an end.
    say(is(false), "EngineCannotLoadAdapters",
        "the engines of penstock-worker load no LoRA adapters; " + std::to_string(status.endpoints_wanted) +
            " groups would have it. Serve the adapter merged into its model.");
  } else {
    say(kube::ConditionStatus::unknown, "NotReported",
        share(status.endpoints_loaded, status.endpoints_wanted, "groups report it"));
  }
  write_status(out, api::model_adapters, adapter->meta, api::to_json(adapter->status), api::to_json(status));
  return out;
}

Outcome reconcile_topology(const kube::Key& key, const Stores& stores, const Context& context) {
  Outcome out;
  const auto* topology = stores.topologies.find(key);
  if (topology == nullptr || topology->meta.deleted) return out;
  api::ClusterTopologyStatus status = topology->status;
  status.observed_generation = topology->meta.generation;
  status.levels.clear();
  std::string lacking;
  for (const auto& level : topology->spec.levels) {
    std::set<std::string_view> values;
    api::TopologyLevelStatus one;
    one.domain = level.domain;
    for (const auto* node : stores.nodes.all()) {
      const auto value = node->meta.labels.find(level.node_label);
      if (value) values.insert(*value);
      one.nodes_missing_label += !value;
    }
    one.instances = static_cast<std::int32_t>(values.size());
    if (one.nodes_missing_label > 0) {
      lacking +=
          (lacking.empty() ? "" : "; ") + std::to_string(one.nodes_missing_label) + " nodes lack " + level.node_label;
    }
    status.levels.push_back(std::move(one));
  }
  set(status.conditions, topology->meta, context.now, "Complete", is(lacking.empty()),
      lacking.empty() ? "Labelled" : "NodesLackLabel",
      lacking.empty() ? "" : lacking + ". Gangs that require these domains go only to labelled nodes.");
  write_status(out, api::cluster_topologies, topology->meta, api::to_json(topology->status), api::to_json(status));
  return out;
}

}  // namespace penstock::ctl
