#include "tests/sim/operator/operator_under_test.hpp"

#include <utility>

#include "operator/api/types.hpp"
#include "operator/core/objects/types.hpp"
#include "operator/runtime/changes.hpp"

namespace penstock::sim {
namespace {

using ctl::type_name;

std::string name_of(const kube::Write& write) {
  struct Name {
    std::string operator()(const kube::Create& one) const {
      return type_name(one.type) + (one.dry_run == kube::DryRun::yes ? " try" : " create");
    }
    std::string operator()(const kube::Apply& one) const { return type_name(one.type) + " apply"; }
    std::string operator()(const kube::ApplyStatus& one) const { return type_name(one.type) + " status"; }
    std::string operator()(const kube::Patch& one) const { return type_name(one.type) + " patch"; }
    std::string operator()(const kube::Delete& one) const { return type_name(one.type) + " delete"; }
    std::string operator()(const kube::EmitEvent& one) const { return "event " + one.reason; }
  };
  return std::visit(Name(), write);
}

bool is_dry_run(const kube::Write& write) {
  const auto* create = std::get_if<kube::Create>(&write);
  return create != nullptr && create->dry_run == kube::DryRun::yes;
}

/// Boost.JSON and field results alike, as what a projection gives.
template <class R>
auto take(R result) {
  return std::move(result).value();
}

}  // namespace

OperatorUnderTest::OperatorUnderTest(ApiServer& api, std::string name, std::uint64_t seed, Faults faults)
    : api_(api), name_(std::move(name)), random_(seed), faults_(faults) {
  start();
}

template <class T, class Parse>
void OperatorUnderTest::watch(const std::string& type, kube::Store<T>& store, Parse parse) {
  Watch& watch = watches_[type];
  watch.apply = [this, type, &store, parse](const LogEntry& entry) {
    T object = take(parse(json::Value(*entry.object)));
    const kube::ObjectMeta meta = object.meta;
    const T* before = store.find(entry.key);
    const bool is_edit =
        ctl::is_edit(before == nullptr ? nullptr : &before->meta, entry.deleted ? nullptr : &object.meta);
    if (entry.deleted) {
      store.erase(entry.key, entry.version);
    } else {
      store.upsert(std::move(object));
    }
    wake(type, meta, entry.key, is_edit ? News::edit : News::status);
  };
  watch.relist = [this, type, &store, parse] {
    store.begin_replace();
    for (const auto& object : api_.list(type)) store.stage(take(parse(json::Value(*object))));
    store.commit_replace(api_.version());
    for (const T* object : store.all()) wake(type, object->meta, object->meta.key(), News::edit);
    watches_[type].at = api_.log().size();
    watches_[type].version = api_.version();
  };
}

/// A process that has just started: nothing is remembered, everything is listed.
void OperatorUnderTest::start() {
  stores_ = std::make_unique<ctl::Stores>();
  watches_.clear();
  services_ = ctl::WorkQueue(random_.next(), {}, std::chrono::seconds(1));
  groups_ = ctl::WorkQueue(random_.next(), {}, std::chrono::milliseconds(200));
  scalers_ = ctl::WorkQueue(random_.next(), {}, std::chrono::seconds(1));
  expectations_ = ctl::Expectations();
  failures_.clear();
  stores_->add_children({kube::services, kube::config_maps, kube::service_accounts, ctl::rbac_roles,
                         ctl::rbac_role_bindings, kube::disruption_budgets, kube::network_policies, kube::pod_groups});
  watch(type_name(ctl::api::llm_services), stores_->services, [this](const json::Value& value) {
    auto service = ctl::api::parse_llm_service(value);
    if (service && faults_.no_floor) service->spec.rollout.max_unavailable = {100, true};
    if (service && faults_.no_floor) service->spec.rollout.max_surge = {0, false};
    return service;
  });
  watch(type_name(ctl::api::role_scalers), stores_->scalers,
        [](const json::Value& v) { return ctl::api::parse_role_scaler(v); });
  watch(type_name(ctl::api::worker_groups), stores_->groups,
        [](const json::Value& v) { return ctl::api::parse_worker_group(v); });
  watch(type_name(ctl::api::cluster_topologies), stores_->topologies,
        [](const json::Value& v) { return ctl::api::parse_cluster_topology(v); });
  watch("pods", stores_->pods, [](const json::Value& v) { return ctl::parse_pod(v.as_object()); });
  watch("nodes", stores_->nodes, [](const json::Value& v) { return ctl::parse_node(v.as_object()); });
  watch(type_name(kube::deployments), stores_->deployments,
        [](const json::Value& v) { return ctl::parse_deployment(v.as_object()); });
  watch(type_name(kube::controller_revisions), stores_->revisions,
        [](const json::Value& v) { return ctl::parse_revision(v.as_object()); });
  for (auto& [type, store] : stores_->children)
    watch(type, store, [](const json::Value& v) { return ctl::parse_child(v.as_object()); });
  for (auto& [type, one] : watches_) one.relist();
}

void OperatorUnderTest::wake(const std::string& type, const kube::ObjectMeta& meta, const kube::Key& key, News news) {
  const bool is_edit = news == News::edit;
  if (!is_edit && stores_->children.contains(type)) return;
  const ctl::Priority own = is_edit ? ctl::Priority::user : ctl::Priority::pod;
  if (type == "llmservices.penstock.dev") services_.add(key, own, now());
  if (type == "workergroups.penstock.dev") groups_.add(key, is_edit ? ctl::Priority::sync : own, now());
  if (type == "rolescalers.penstock.dev") scalers_.add(key, own, now());
  if (type == "nodes") {
    for (const auto* group : stores_->groups.all()) groups_.add(group->meta.key(), ctl::Priority::sync, now());
  }
  if (!meta.controller) return;
  const kube::Key owner{meta.namespace_, meta.controller->name};
  if (meta.controller->kind == "LLMService") services_.add(owner, ctl::Priority::pod, now());
  if (meta.controller->kind == "WorkerGroup") groups_.add(owner, ctl::Priority::pod, now());
  if (type == "workergroups.penstock.dev") {
    for (const auto* scaler : stores_->scalers.all()) scalers_.add(scaler->meta.key(), ctl::Priority::sync, now());
    // A revision that came late is what its groups wait for.
  } else if (type == "controllerrevisions.apps") {
    for (const auto* group : stores_->groups.all()) groups_.add(group->meta.key(), ctl::Priority::sync, now());
  }
}

void OperatorUnderTest::deliver(Watch& watch, const std::string& type, std::uint64_t count) {
  while (watch.at < api_.log().size() && count > 0) {
    const LogEntry& entry = api_.log()[watch.at++];
    watch.version = entry.version;  // other types' entries stand for bookmarks
    if (entry.type != type) continue;
    --count;
    watch.apply(entry);
  }
}

std::uint64_t OperatorUnderTest::version(std::string_view type) const {
  const auto at = watches_.find(std::string(type));
  // A kind that isn't watched (Secrets) is never waited for.
  return at == watches_.end() ? ~std::uint64_t{0} : at->second.version;
}

bool OperatorUnderTest::is_live(std::string_view type, std::string_view uid) const {
  const auto live = [&](const auto& store) {
    for (const auto* object : store.all()) {
      if (object->meta.uid == uid) return !object->meta.deleted;
    }
    return false;
  };
  if (type == "pods") return live(stores_->pods);
  if (type == "workergroups.penstock.dev") return live(stores_->groups);
  if (type == "controllerrevisions.apps") return live(stores_->revisions);
  const auto at = stores_->children.find(type);
  return at != stores_->children.end() && live(at->second);
}

void OperatorUnderTest::turn(const std::string& holder, int keys) {
  for (auto& [type, one] : watches_) {
    if (chance(faults_.relist)) one.relist();
    if (!chance(faults_.lag)) deliver(one, type, faults_.lag == 0 ? ~std::uint64_t{0} : 1 + random_.below(4));
  }
  if (holder != name_ && !faults_.no_fence) {
    leads_ = false;
    return;
  }
  if (!std::exchange(leads_, true)) led_since_ = api_.version();
  // What the leader before has written is waited for like one's own writes.
  for (const auto& [type, one] : watches_) {
    if (one.version < led_since_ && !faults_.no_barrier && !faults_.no_fence) return;
  }
  try {
    work(services_, &ctl::reconcile_service, holder, keys);
    work(groups_, &ctl::reconcile_group, holder, keys);
    work(scalers_, &ctl::reconcile_scaler, holder, keys);
  } catch (const Crash&) {
    ++crashes_;
    start();
  }
}

void OperatorUnderTest::catch_up() {
  for (auto& [type, one] : watches_) one.relist();
}

const kube::ObjectMeta* OperatorUnderTest::meta_of(Reconcile reconcile, const kube::Key& key) const {
  const auto find = [&](const auto& store) -> const kube::ObjectMeta* {
    const auto* object = store.find(key);
    return object == nullptr ? nullptr : &object->meta;
  };
  if (reconcile == &ctl::reconcile_service) return find(stores_->services);
  if (reconcile == &ctl::reconcile_group) return find(stores_->groups);
  return find(stores_->scalers);
}

void OperatorUnderTest::work(ctl::WorkQueue& queue, Reconcile reconcile, const std::string& holder, int keys) {
  while (keys-- > 0) {
    const auto key = queue.take(now());
    if (!key) return;
    const auto* meta = meta_of(reconcile, *key);
    const std::string uid = meta == nullptr ? "" : meta->uid;
    if (!faults_.no_barrier && !expectations_.are_met(uid, *this, now())) {
      queue.done(*key, now());
      queue.add_at(*key, now() + std::chrono::seconds(1));
      continue;
    }
    ctl::Context context{
        api_.now, random_, [](std::size_t n) { return std::string(n, 'k'); }, {}, {"router:1", "worker:1"},
        {},       nullptr};
    context.capabilities.pod_groups = true;
    if (const auto failed = failures_.find(*key); failed != failures_.end()) context.last_failure = failed->second;
    const ctl::Outcome outcome = reconcile(*key, *stores_, context);
    failures_.erase(*key);
    const bool done = carry_out(outcome, uid, holder);
    queue.done(*key, now(), outcome.rest);
    if (!done) {
      if (failure_) failures_[*key] = *std::exchange(failure_, std::nullopt);
      queue.add_after_failure(*key, now());
    } else {
      queue.forget_failures(*key);
      if (outcome.requeue_after) queue.add_at(*key, now() + *outcome.requeue_after);
    }
  }
}

bool OperatorUnderTest::carry_out(const ctl::Outcome& outcome, const std::string& owner_uid,
                                  const std::string& holder) {
  if (faults_.always_writes) {
    ++writes_;
    (void)api_.execute(kube::Delete{kube::pods, {"ns", "nobody"}, {}, kube::Propagation::background, {}});
  }
  for (const auto& write : outcome.writes) {
    if (holder != name_ && !faults_.no_fence) return false;
    if (chance(faults_.crash)) throw Crash{};
    if (chance(faults_.refuse)) return false;
    ++writes_;
    ++written_[name_of(write)];
    const auto result = api_.execute(write);
    if (chance(faults_.lose_answer)) {
      if (!is_dry_run(write))
        note(write, owner_uid, api_.version());  // a read of the collection tells which version to wait for
      return false;
    }
    if (!result) {
      const auto* create = std::get_if<kube::Create>(&write);
      if (create != nullptr && result.error().is(kube::Failure::already_exists)) continue;
      const bool tried = create != nullptr && create->dry_run == kube::DryRun::yes;
      if (tried && kube::is_quota(result.error())) continue;
      if (std::holds_alternative<kube::Delete>(write) && result.error().is(kube::Failure::not_found)) continue;
      failure_ = ctl::WriteFailure{result.error(), tried};
      return false;
    }
    if (!is_dry_run(write)) note(write, owner_uid, result->version);
  }
  return true;
}

void OperatorUnderTest::note(const kube::Write& write, const std::string& owner_uid, std::uint64_t version) {
  if (const auto* gone = std::get_if<kube::Delete>(&write)) {
    expectations_.on_deleted(owner_uid, type_name(gone->type), gone->preconditions.uid, now());
    return;
  }
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.type.plural; })
          expectations_.on_written(owner_uid, type_name(one.type), version, now());
      },
      write);
}

}  // namespace penstock::sim
