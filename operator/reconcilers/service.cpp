#include "operator/core/service.hpp"

#include <algorithm>
#include <set>

#include "operator/api/types.hpp"
#include "operator/core/hash.hpp"
#include "operator/core/names.hpp"
#include "operator/core/objects/service_children.hpp"
#include "operator/core/service_status.hpp"
#include "operator/reconcilers/scaling.hpp"
#include "operator/reconcilers/trials.hpp"
#include "operator/reconcilers/writes.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view worker_container = "worker", router_container = "router";

// A look at a service, and the status that may come of it, cost the more the more groups there are.
constexpr Duration rest_min = std::chrono::seconds(1), rest_max = std::chrono::seconds(5),
                   rest_a_group = std::chrono::milliseconds(50);

std::string image_of(const api::RoleSpec& role, std::string_view container, const std::string& otherwise) {
  const auto* containers = kube::array_at(role.pod_template, {"spec", "containers"});
  if (containers != nullptr) {
    for (const auto& item : *containers) {
      const auto* object = item.if_object();
      if (object == nullptr || kube::text_at(*object, {"name"}) != container) continue;
      if (const auto image = kube::text_at(*object, {"image"})) return std::string(*image);
    }
  }
  return otherwise;
}

std::vector<const Revision*> history(const api::LLMService& service, const Stores& stores) {
  auto all = stores.revisions.owned_by(service.meta.uid);
  std::sort(all.begin(), all.end(), [](const Revision* a, const Revision* b) { return a->number < b->number; });
  return all;
}

const Revision* find_revision(const std::vector<const Revision*>& all, const ResolvedRole& role) {
  for (const auto* one : all) {
    if (one->meta.labels.get(label::role) != role.spec.name) continue;
    const auto stored = one->meta.annotations.get(annotation::role_hash);
    if (stored == role.hash) return one;
  }
  return nullptr;
}

class ServiceReconcile {
 public:
  ServiceReconcile(const api::LLMService& service, const Stores& stores, const Context& context)
      : service_(service), stores_(stores), context_(context), resolved_(resolve(service)) {}

  Outcome run() {
    const auto* cluster = stores_.topologies.find({"", service_.spec.placement.topology_ref.name});
    topology_ = topology_of(cluster);
    topology_problem_ = check_placement(service_.spec, topology_, cluster);
    template_problem_ = trial_refusal_of(context_);
    if (!topology_problem_) topology_problem_ = missing_topology(cluster);
    model_problem_ = check_model();
    revisions_ = history(service_, stores_);
    adopt_known_hashes();
    scaling_ = plan_scaling(service_, resolved_, stores_, context_);
    for (const auto* group : stores_.groups.owned_by(service_.meta.uid)) groups_.push_back(group);
    // A template that isn't taken stops the roll where it is: what is lost meanwhile is made again as it was.
    std::optional<api::LLMService> paused;
    if (template_problem_) {
      paused = service_;
      paused->spec.rollout.paused = true;
    }
    plan_ = plan_service({paused ? &*paused : &service_, &resolved_, scaling_.desired, groups_, context_.now});

    next_number_ = revisions_.empty() ? 1 : revisions_.back()->number + 1;
    status();
    // Beside the status that says so: what comes after may be refused, and the next look sees nothing new.
    for (const auto& notice : notices_) write_event(out_, api::llm_services, service_.meta, notice);
    for (auto& write : scaling_.writes) out_.writes.push_back(std::move(write));
    if (template_problem_) {
      shared();
      groups();
      router_revision();
      worker_revisions();
    } else {
      router_revision();
      shared();
      worker_revisions();
      groups();
    }
    trim_history();
    out_.rest = std::clamp<Duration>(rest_a_group * groups_.size(), rest_min, rest_max);
    if (context_.certificate_end_s) look_again_at_the_end();
    for (const auto& after : {plan_.look_again, scaling_.look_again, status_look_again_}) {
      if (after) out_.requeue_after = std::min(out_.requeue_after.value_or(*after), *after);
    }
    return std::move(out_);
  }

 private:
  /// When the certificate begins to be complained about, and when it ends.
  void look_again_at_the_end() {
    const std::int64_t left = *context_.certificate_end_s - context_.now.unix_s();
    for (const std::int64_t wait : {left - certificate_warning_s, left}) {
      if (wait < 0) continue;
      const Duration again = std::chrono::seconds(wait + 1);
      out_.requeue_after = std::min(out_.requeue_after.value_or(again), again);
    }
  }

  std::optional<Problem> missing_topology(const api::ClusterTopology* cluster) const {
    const bool named = service_.spec.placement.topology_ref.name != api::ServicePlacement{}.topology_ref.name;
    if (cluster != nullptr || !named) return std::nullopt;
    return Problem{"TopologyNotFound", "placement.topologyRef names " + service_.spec.placement.topology_ref.name +
                                           ", which isn't there. Create it, or name another ClusterTopology."};
  }

  std::optional<Problem> check_model() const {
    const auto& model = service_.spec.model;
    if (model.cache_ref) {
      const auto* cache = stores_.caches.find({service_.meta.namespace_, model.cache_ref->name});
      if (cache == nullptr) {
        return Problem{"CacheNotFound",
                       "spec.model.cacheRef names " + model.cache_ref->name + ", which isn't there. Create it."};
      }
      if (!kube::is_true(cache->status.conditions, "Ready")) {
        return Problem{"CacheNotReady", "ModelCache " + model.cache_ref->name + " is on " +
                                            std::to_string(cache->status.nodes_ready) + " of " +
                                            std::to_string(cache->status.nodes_wanted) + " nodes"};
      }
      return std::nullopt;
    }
    for (const std::string_view scheme : {"hf://", "s3://", "gs://"}) {
      if (!model.uri.starts_with(scheme)) continue;
      return Problem{"NeedsModelCache", std::string(scheme) +
                                            " weights are fetched by a ModelCache. Create one with this "
                                            "uri and name it in spec.model.cacheRef."};
    }
    return std::nullopt;
  }

  /// A format of hashes that this program doesn't know was made by a later one: the pods are taken as they are.
  void adopt_known_hashes() {
    for (auto& role : resolved_.workers) {
      const Revision* newest = nullptr;
      for (const auto* one : revisions_) {
        if (one->meta.labels.get(label::role) == role.spec.name) newest = one;
      }
      if (newest == nullptr) continue;
      const auto stored = newest->meta.annotations.get(annotation::role_hash);
      if (is_known_format(stored)) continue;
      json::Object data = newest->data;
      data.erase("image");
      if (canonical_hash(data) != role.hash) continue;
      role.hash = stored;
      role.revision = short_hash(stored);
    }
  }

  /// The image of a revision that is there stays: a new default reaches only new revisions.
  std::string router_image() const {
    const auto* revision = find_revision(revisions_, resolved_.router);
    if (revision != nullptr) return std::string(kube::text_at(revision->data, {"image"}).value_or(""));
    return image_of(resolved_.router.spec, router_container, context_.images.router);
  }

  void status() {
    StatusInput input;
    input.service = &service_;
    input.resolved = &resolved_;
    input.plan = &plan_;
    input.gang = choose_gang(service_.spec.scheduling.backend, context_.capabilities);
    input.topology = topology_problem_;
    input.model = model_problem_;
    input.template_ = template_problem_;
    input.scaling = scaling_.problem;
    input.scaling_summary = scaling_.summary;
    const Problem refusal = refusal_of(context_);
    input.refusal = refusal.message;
    input.refusal_reason = refusal.reason;
    const auto* router = stores_.deployments.find({service_.meta.namespace_, router_name(service_.meta.name)});
    input.router_ready = router != nullptr && router->ready > 0;
    input.endpoint = endpoint(service_);
    input.certificate_end_s = context_.certificate_end_s;
    input.now = context_.now;
    StatusResult result = service_status(input);
    notices_ = std::move(result.notices);
    status_look_again_ = result.look_again;
    write_status(out_, api::llm_services, service_.meta, api::to_json(service_.status), api::to_json(result.status));
  }

  ServiceInput service_input() const {
    ServiceInput input;
    input.service = &service_;
    input.router = &resolved_.router;
    input.router_image = router_image();
    input.capabilities = &context_.capabilities;
    for (std::size_t i = 0; i < resolved_.workers.size(); ++i) {
      input.workers.emplace_back(&resolved_.workers[i].spec, scaling_.desired[i]);
      input.has_gangs |= resolved_.workers[i].spec.group.size > 1;
    }
    for (const auto* group : groups_) input.has_gangs |= group->spec.size > 1;
    return input;
  }

  void shared() {
    const kube::Key router{service_.meta.namespace_, router_name(service_.meta.name)};
    // The Deployment is made last of all: without it the Secret may be missing, with it the Secret is there.
    if (stores_.deployments.find(router) == nullptr) {
      out_.writes.emplace_back(keys_secret(service_, context_.secret_bytes(32), context_.secret_bytes(32)));
    }
    const auto children = service_children(service_input());
    // While a template is refused a router of a new revision may be what is refused: the one that runs stays.
    const bool router_stays = template_problem_ && !has_revision(resolved_.router);
    for (const auto& child : children) {
      const bool of_router = child.type == kube::deployments || child.type == kube::config_maps;
      if (!router_stays || !of_router) write_child(out_, stores_, child);
    }
    for (const auto& type : {kube::disruption_budgets, kube::network_policies, kube::http_routes, kube::inference_pools,
                             kube::services, kube::config_maps}) {
      prune(out_, stores_, type, service_.meta.uid, children);
    }
  }

  void make_revision(const ResolvedRole& role, std::string_view container, const std::string& default_image) {
    if (has_revision(role)) return;
    const std::string name = bounded_name({service_.meta.name, role.spec.name}, 52) + "-" + role.revision;
    kube::StringMap labels = service_labels(service_.meta.name);
    labels.set(label::role, role.spec.name);
    labels.set(label::revision, role.revision);
    kube::Create create{kube::controller_revisions, service_.meta.namespace_, {}};
    create.body =
        kube::make_object(create.type, {service_.meta.namespace_, name}, labels, {{annotation::role_hash, role.hash}});
    create.body["metadata"].as_object()["ownerReferences"] =
        json::Array{kube::controller_reference(api::llm_services, service_.meta)};
    json::Object data = role.data;
    data["image"] = image_of(role.spec, container, default_image);
    // A refusal ends this reconcile before anything of the revision exists.
    auto trials = container == worker_container ? try_worker(service_, role, data, topology_, context_.capabilities)
                                                : try_router(service_input());
    for (auto& trial : trials) out_.writes.push_back(std::move(trial));
    create.body["data"] = std::move(data);
    create.body["revision"] = next_number_++;
    out_.writes.emplace_back(std::move(create));
  }

  bool has_revision(const ResolvedRole& role) const { return find_revision(revisions_, role) != nullptr; }

  void router_revision() { make_revision(resolved_.router, router_container, context_.images.router); }
  void worker_revisions() {
    for (const auto& role : resolved_.workers) make_revision(role, worker_container, context_.images.worker);
  }

  void make_group(const ResolvedRole& role, const std::string& hash, const std::string& revision,
                  const std::string& pairing) {
    const std::string name = group_name(service_.meta.name, role.spec.name, make_group_id(context_.random));
    kube::StringMap labels = role_labels(service_.meta.name, role.spec);
    labels.set(label::revision, revision);
    if (!pairing.empty()) labels.set(label::pairing, pairing);
    kube::Create create{api::worker_groups, service_.meta.namespace_, {}};
    create.body = kube::make_object(create.type, {service_.meta.namespace_, name}, labels);
    create.body["metadata"].as_object()["ownerReferences"] =
        json::Array{kube::controller_reference(api::llm_services, service_.meta)};
    api::WorkerGroupSpec spec;
    spec.service_name = service_.meta.name;
    spec.role = role.spec.name;
    spec.revision = revision;
    spec.role_hash = hash;
    spec.size = role.spec.group.size;
    create.body["spec"] = api::to_json(spec);
    out_.writes.emplace_back(std::move(create));
  }

  /// Of a role's old groups, what most of them have.
  void make_old_group(const RolePlan& role) {
    const GroupFacts* model = nullptr;
    for (const auto& group : role.groups) {
      const bool newer = model == nullptr || group.group->meta.created > model->group->meta.created;
      if (!group.is_new && newer) model = &group;
    }
    if (model == nullptr) return;
    make_group(*role.role, model->group->spec.role_hash, model->group->spec.revision,
               std::string(model->group->meta.labels.get(label::pairing)));
  }

  void tell_to_drain(const api::WorkerGroup& group, std::int32_t drain_seconds) {
    kube::Patch patch{api::worker_groups,        group.meta.key(), "", kube::PatchKind::merge, {}, {},
                      std::string(field_manager)};
    const std::string deadline = std::to_string(context_.now.unix_s() + drain_seconds);
    patch.body =
        json::Object{{"metadata", json::Object{{"annotations", json::Object{{annotation::drain_deadline, deadline}}}}}};
    // Only the group as it was judged: had it become ready or been told already, the plan would be another.
    patch.preconditions = {group.meta.uid, group.meta.resource_version};
    out_.writes.emplace_back(std::move(patch));
  }

  void groups() {
    const bool may_create = !topology_problem_ && !model_problem_;
    for (const auto& role : plan_.roles) {
      if (role.role == nullptr || !may_create) continue;
      const bool may_be_new = !template_problem_ || find_revision(revisions_, *role.role) != nullptr;
      for (std::uint32_t i = 0; may_be_new && i < role.step.create_new; ++i) {
        make_group(*role.role, role.role->hash, role.role->revision, role.role->pairing);
      }
      for (std::uint32_t i = 0; i < role.step.create_old; ++i) make_old_group(role);
    }
    // Round robin over the roles, so that a crash leaves the sides of a pair as even as may be.
    for (std::size_t k = 0; true; ++k) {
      bool any = false;
      for (const auto& role : plan_.roles) {
        if (k >= role.drain.size()) continue;
        any = true;
        tell_to_drain(*role.drain[k],
                      role.role == nullptr ? api::RoleSpec{}.drain_seconds : role.role->spec.drain_seconds);
      }
      if (!any) return;
    }
  }

  /// Revisions that no group has and no role wants, beyond the limit of a role, oldest first.
  void trim_history() {
    std::set<std::string_view> used;
    for (const auto* group : groups_) used.insert(group->spec.role_hash);
    for (const auto& role : resolved_.workers) used.insert(role.hash);
    used.insert(resolved_.router.hash);
    std::map<std::string_view, std::int32_t> spare;
    for (auto at = revisions_.rbegin(); at != revisions_.rend(); ++at) {
      const Revision& one = **at;
      if (used.contains(one.meta.annotations.get(annotation::role_hash)) || one.meta.deleted) continue;
      if (++spare[one.meta.labels.get(label::role)] <= service_.spec.rollout.revision_history_limit) continue;
      write_delete(out_, kube::controller_revisions, one.meta);
    }
  }

  const api::LLMService& service_;
  const Stores& stores_;
  const Context& context_;
  ResolvedService resolved_;
  Topology topology_;
  std::optional<Problem> topology_problem_, model_problem_, template_problem_;
  std::vector<const Revision*> revisions_;
  std::vector<const api::WorkerGroup*> groups_;
  ScalingPlan scaling_;
  ServicePlan plan_;
  std::vector<Notice> notices_;
  std::optional<Duration> status_look_again_;
  std::int64_t next_number_ = 1;
  Outcome out_;
};

}  // namespace

Outcome reconcile_service(const kube::Key& key, const Stores& stores, const Context& context) {
  const auto* service = stores.services.find(key);
  // A service that is going makes nothing any more, whatever is missing; the collector takes its children.
  if (service == nullptr || service->meta.deleted) return {};
  return ServiceReconcile(*service, stores, context).run();
}

}  // namespace penstock::ctl
