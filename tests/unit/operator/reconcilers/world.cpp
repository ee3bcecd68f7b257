#include "tests/unit/operator/reconcilers/world.hpp"

#include <utility>

namespace penstock::ctl::testing {
namespace {

template <class T, class Parse>
void set_status(kube::Store<T>& store, const kube::ApplyStatus& write, Parse parse) {
  const T* before = store.find(write.key);
  if (before == nullptr) return;
  json::Object object = kube::make_object(write.type, write.key);
  object["spec"] = api::to_json(before->spec);
  object["status"] = write.body.at("status");
  T after = *before;
  after.status = parse(json::Value(object)).value().status;
  store.upsert(std::move(after));
}

}  // namespace

World::World() {
  stores.add_children({kube::services, kube::config_maps, kube::service_accounts, rbac_roles, rbac_role_bindings,
                       kube::disruption_budgets, kube::network_policies, kube::pod_groups});
  sync();
}

World::~World() = default;

void World::sync() {
  const auto empty = [](auto& store) {
    store.begin_replace();
    store.commit_replace(1);
  };
  empty(stores.services);
  empty(stores.groups);
  empty(stores.pods);
  empty(stores.nodes);
  empty(stores.revisions);
  empty(stores.deployments);
  empty(stores.caches);
  empty(stores.node_caches);
}

void World::service(std::string_view spec, std::string_view name) {
  const std::string text = R"({"metadata":{"namespace":"ns","name":")" + std::string(name) + R"(","uid":"uid-)" +
                           std::string(name) + R"(","generation":1},"spec":)" + std::string(spec) + "}";
  stores.services.upsert(api::parse_llm_service(json::parse(text).value()).value());
}

void World::node(const std::string& name, std::string_view labels, std::string_view rest) {
  const std::string text = R"({"metadata":{"name":")" + name + R"(","uid":"uid-)" + name + R"(","labels":)" +
                           std::string(labels) + R"(},"status":{)" + std::string(rest) +
                           R"(,"conditions":[{"type":"Ready","status":"True"}]}})";
  stores.nodes.upsert(parse_node(json::parse(text).value().as_object()).value());
}

void World::set_group_condition(const std::string& group, kube::Condition condition) {
  api::WorkerGroup one = *stores.groups.find({"ns", group});
  kube::set_condition(one.status.conditions, std::move(condition), now);
  stores.groups.upsert(std::move(one));
}

void World::set_ready(const std::string& group) {
  kube::Condition condition;
  condition.type = "Ready";
  condition.status = kube::ConditionStatus::yes;
  condition.reason = "MembersReady";
  set_group_condition(group, std::move(condition));
}

void World::set_unschedulable(const std::string& group) {
  kube::Condition condition;
  condition.type = "Scheduled";
  condition.status = kube::ConditionStatus::no;
  condition.reason = "Unschedulable";
  set_group_condition(group, std::move(condition));
}

Context World::context() {
  Context out{now,    random, [](std::size_t n) { return std::string(n, 'k'); }, capabilities, {"router:1", "worker:1"},
              failure};
  out.certificate_end_s = certificate_end_s;
  return out;
}

Outcome World::look_at_service(const std::string& name) {
  return keep(reconcile_service({"ns", name}, stores, context()));
}
Outcome World::look_at_group(const std::string& name) {
  return keep(reconcile_group({"ns", name}, stores, context()));
}

Outcome World::keep(Outcome outcome) {
  for (const auto& write : outcome.writes) {
    if (const auto* create = std::get_if<kube::Create>(&write)) {
      if (create->dry_run == kube::DryRun::yes) continue;
      json::Object object = create->body;
      auto& meta = object["metadata"].as_object();
      meta["uid"] = "uid-" + std::to_string(++uids);
      meta["generation"] = 1;
      meta["creationTimestamp"] = kube::format_time(now);
      if (create->type == kube::pods) stores.pods.upsert(parse_pod(object).value());
      if (create->type == kube::controller_revisions) stores.revisions.upsert(parse_revision(object).value());
      if (create->type == api::worker_groups) {
        stores.groups.upsert(api::parse_worker_group(json::Value(object)).value());
      }
    }
    if (const auto* status = std::get_if<kube::ApplyStatus>(&write)) take_status(*status);
  }
  return outcome;
}

void World::take_status(const kube::ApplyStatus& write) {
  if (write.type == api::llm_services) set_status(stores.services, write, api::parse_llm_service);
  if (write.type == api::worker_groups) set_status(stores.groups, write, api::parse_worker_group);
  if (write.type == api::model_adapters) set_status(stores.adapters, write, api::parse_model_adapter);
  if (write.type == api::role_scalers) set_status(stores.scalers, write, api::parse_role_scaler);
  if (write.type == api::model_caches) set_status(stores.caches, write, api::parse_model_cache);
}

std::vector<const kube::Create*> World::tried(const Outcome& outcome, std::string_view role) {
  std::vector<const kube::Create*> out;
  for (const auto* one : all<kube::Create>(outcome, kube::pods)) {
    const bool is_of = kube::text_at(one->body, {"metadata", "labels", label::role}) == role;
    if (is_of && one->dry_run == kube::DryRun::yes) out.push_back(one);
  }
  return out;
}

std::vector<std::string> World::events(const Outcome& outcome) {
  std::vector<std::string> out;
  for (const auto& write : outcome.writes) {
    if (const auto* event = std::get_if<kube::EmitEvent>(&write)) out.push_back(event->reason);
  }
  return out;
}

const api::LLMServiceStatus& World::service_status(const std::string& name) const {
  return stores.services.find({"ns", name})->status;
}

std::string World::said(const kube::Conditions& conditions, std::string_view type) {
  const auto* one = kube::find_condition(conditions, type);
  return one == nullptr ? "" : std::string(kube::to_string(one->status)) + " " + one->reason;
}
std::string World::said_of_service(std::string_view type, const std::string& name) const {
  return said(service_status(name).conditions, type);
}
std::string World::said_of_group(std::string_view type, const std::string& name) const {
  return said(stores.groups.find({"ns", name})->status.conditions, type);
}

void World::change_pod(const kube::Key& key, const std::function<void(Pod&)>& change) {
  Pod pod = *stores.pods.find(key);
  change(pod);
  stores.pods.upsert(std::move(pod));
}

void World::refuse(int code, std::string reason, std::string message, bool of_dry_run) {
  kube::ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  failure = WriteFailure{std::move(status), of_dry_run};
}

}  // namespace penstock::ctl::testing
