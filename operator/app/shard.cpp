#include "operator/app/shard.hpp"

#include <algorithm>
#include <utility>

#include "common/base/id.hpp"
#include "common/kube/client/watch_loop.hpp"
#include "common/kube/model/known_types.hpp"
#include "common/time/wall_clock.hpp"
#include "operator/api/types.hpp"
#include "operator/app/figures.hpp"
#include "operator/core/group.hpp"
#include "operator/core/objects/types.hpp"
#include "operator/core/service_troubles.hpp"
#include "operator/reconcilers/stores.hpp"
#include "operator/runtime/caches.hpp"
#include "operator/runtime/changes.hpp"
#include "operator/runtime/projection.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view ours = "app.kubernetes.io/managed-by=penstock";

// The pods of a gang change together, and the groups of a service by the dozen.
constexpr Duration group_rest = std::chrono::milliseconds(200), follower_rest = std::chrono::seconds(1);

kube::Timestamp wall_timestamp() {
  return kube::Timestamp::from_seconds(wall_now().unix_s);
}

std::string secret_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  base::random_bytes(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace

struct Shard::Parts {
  Parts(ShardContext shared, std::string served, ClusterDuty share)
      : context(std::move(shared)),
        namespace_(std::move(served)),
        duty(share),
        tasks(context.executor, [this](std::string_view task, std::string_view what) {
          context.logger.error("task failed", {{"task", task}, {"reason", what}});
        }) {
    services = make_controller("service", reconcile_service, stores.services);
    groups = make_controller("group", reconcile_group, stores.groups, group_rest);
    scalers = make_controller("scaler", reconcile_scaler, stores.scalers);
    caches = make_controller("cache", reconcile_cache, stores.caches);
    adapters = make_controller("adapter", reconcile_adapter, stores.adapters);
    if (duty == ClusterDuty::topologies_and_nodes) {
      node_caches = make_controller("node-cache", reconcile_node_cache, stores.nodes);
      topologies = make_controller("topology", reconcile_topology, stores.topologies);
    }
    figures.on_certificate = [this](const kube::Key& key) { services->add(key, Priority::pod); };
    watch_own_kinds();
    watch_children();
  }

  using Pure = Outcome (*)(const kube::Key&, const Stores&, const Context&);

  template <class T>
  std::unique_ptr<Controller> make_controller(std::string name, Pure pure, const kube::Store<T>& store,
                                              Duration rest = follower_rest) {
    ControllerOptions options;
    options.rest = rest;
    options.name = name;
    options.workers = context.workers;
    options.seed = context.random.next();
    const auto run = [this, pure](const kube::Key& key, const std::optional<WriteFailure>& last_failure) {
      if (!is_synced()) return Outcome{{}, std::chrono::milliseconds(100)};
      const Context now{wall_timestamp(),
                        context.random,
                        secret_bytes,
                        context.capabilities,
                        context.images,
                        last_failure,
                        figures.of(service_of(key)),
                        figures.certificate_end_s(key)};
      return pure(key, stores, now);
    };
    const auto uid = [&store](const kube::Key& key) {
      const T* object = store.find(key);
      return object == nullptr ? std::string() : object->meta.uid;
    };
    return std::make_unique<Controller>(context.executor, std::move(options), run, uid, context.writer, view,
                                        context.clock, make_controller_probe(context.metrics, name), context.logger);
  }

  // --- Watches ---

  template <class T>
  void watch(const kube::ResourceType& type, kube::Store<T>& store, kube::Projection<T> read, std::string_view selector,
             std::function<void(const kube::Change<T>&)> observer) {
    kube::WatchOptions options;
    options.label_selector = selector;
    view.add(type, store);
    if (observer) store.observe(std::move(observer));
    const std::string scope = type.scope == kube::Scope::cluster ? std::string() : namespace_;
    auto informer =
        std::make_shared<kube::Informer<T>>(context.client, type, scope, options, store, std::move(read),
                                            context.random.next(), kube::make_cache_gauge(context.metrics, type));
    watches.push_back({std::string(type.plural), [&store] { return store.synced(); },
                       [this, informer] { tasks.spawn("watch", informer->run()); }, informer});
  }

  /// The object itself, at the priority of who changed it: a status that the operator wrote can rest.
  template <class T>
  std::function<void(const kube::Change<T>&)> to(std::unique_ptr<Controller>& controller) {
    return [&controller](const kube::Change<T>& change) { add_own(*controller, change); };
  }
  template <class T>
  static void add_own(Controller& controller, const kube::Change<T>& change) {
    if (change.origin == kube::Origin::sync) {
      controller.add(meta_of(change).key(), Priority::sync);
    } else {
      controller.add(meta_of(change).key(), is_edit(change) ? Priority::user : Priority::pod);
    }
  }
  template <class T>
  static const kube::ObjectMeta& meta_of(const kube::Change<T>& change) {
    return change.after != nullptr ? change.after->meta : change.before->meta;
  }

  /// The service that an object says it belongs to.
  void add_service_of(const kube::ObjectMeta& meta, Priority priority) {
    if (const auto name = meta.labels.find(label::service))
      services->add({meta.namespace_, std::string(*name)}, priority);
  }
  void add_group_of(const kube::ObjectMeta& meta, Priority priority) {
    if (const auto name = meta.labels.find(label::group)) groups->add({meta.namespace_, std::string(*name)}, priority);
  }
  /// What reports on the groups of a service without owning them.
  void add_followers_of(const kube::ObjectMeta& group) {
    const std::string_view service = group.labels.get(label::service);
    for (const auto* scaler : stores.scalers.in_namespace(group.namespace_)) {
      if (scaler->meta.labels.get(label::service) == service) scalers->add(scaler->meta.key(), Priority::pod);
    }
    for (const auto* adapter : stores.adapters.in_namespace(group.namespace_)) {
      if (adapter->spec.service_name == service) adapters->add(adapter->meta.key(), Priority::pod);
    }
  }
  void add_all_services(Priority priority) {
    for (const auto* service : stores.services.all()) services->add(service->meta.key(), priority);
  }

  void watch_own_kinds() {
    watch<api::LLMService>(api::llm_services, stores.services, projection<api::LLMService>(api::parse_llm_service), {},
                           to<api::LLMService>(services));
    watch<api::RoleScaler>(api::role_scalers, stores.scalers, projection<api::RoleScaler>(api::parse_role_scaler), {},
                           [this](const kube::Change<api::RoleScaler>& change) {
                             add_own(*scalers, change);
                             add_service_of(meta_of(change), Priority::user);
                           });
    watch<api::WorkerGroup>(api::worker_groups, stores.groups, projection<api::WorkerGroup>(api::parse_worker_group),
                            {}, [this](const kube::Change<api::WorkerGroup>& change) {
                              add_own(*groups, change);
                              add_service_of(meta_of(change), Priority::pod);
                              add_followers_of(meta_of(change));
                            });
    watch<api::ModelCache>(api::model_caches, stores.caches, projection<api::ModelCache>(api::parse_model_cache), {},
                           [this](const kube::Change<api::ModelCache>& change) {
                             add_own(*caches, change);
                             add_all_services(Priority::pod);
                             add_all_nodes();
                           });
    watch<api::NodeModelCache>(api::node_model_caches, stores.node_caches,
                               projection<api::NodeModelCache>(api::parse_node_model_cache), {},
                               [this](const kube::Change<api::NodeModelCache>& change) {
                                 if (node_caches) node_caches->add({"", meta_of(change).name}, Priority::pod);
                                 for (const auto* cache : stores.caches.all())
                                   caches->add(cache->meta.key(), Priority::pod);
                               });
    watch<api::ModelAdapter>(api::model_adapters, stores.adapters,
                             projection<api::ModelAdapter>(api::parse_model_adapter), {},
                             to<api::ModelAdapter>(adapters));
    watch<api::ClusterTopology>(api::cluster_topologies, stores.topologies,
                                projection<api::ClusterTopology>(api::parse_cluster_topology), {},
                                [this](const kube::Change<api::ClusterTopology>& change) {
                                  if (topologies) add_own(*topologies, change);
                                  add_all_services(Priority::pod);
                                });
  }

  /// What a pod mounts is in the wish of its node; in a cluster without caches no node has one.
  void add_node_of(const kube::Change<Pod>& change) {
    if (!node_caches || stores.node_caches.size() == 0) return;
    const std::string& node = change.after == nullptr ? change.before->node : change.after->node;
    const bool came = change.before == nullptr || change.before->node.empty();
    const bool went = change.after == nullptr || change.after->lost();
    if (!node.empty() && (came || went)) node_caches->add({"", node}, Priority::pod);
  }

  void add_all_nodes() {
    if (!node_caches) return;
    for (const auto* node : stores.nodes.all()) node_caches->add(node->meta.key(), Priority::sync);
  }

  void on_node(const kube::Change<Node>& change) {
    // A kubelet writes its node's status every few seconds; what matters here changes once in a while.
    const bool both = change.before != nullptr && change.after != nullptr;
    if (both && change.before->ready == change.after->ready && change.before->meta.labels == change.after->meta.labels)
      return;
    const std::string& name = meta_of(change).name;
    for (const Pod* pod : stores.pods.all()) {
      if (pod->node == name) add_group_of(pod->meta, Priority::pod);
    }
    if (node_caches) node_caches->add({"", name}, Priority::sync);
    if (!topologies) return;
    for (const auto* topology : stores.topologies.all()) topologies->add(topology->meta.key(), Priority::sync);
  }

  void watch_children() {
    watch<Pod>(kube::pods, stores.pods, kube::Projection<Pod>(parse_pod), ours,
               [this](const kube::Change<Pod>& change) {
                 Priority priority = change.origin == kube::Origin::sync ? Priority::sync : Priority::pod;
                 if (is_loss(change)) priority = Priority::user;  // not behind a fleet that starts
                 add_group_of(meta_of(change), priority);
                 add_node_of(change);
               });
    watch<Node>(kube::nodes, stores.nodes, kube::Projection<Node>(parse_node), {},
                [this](const kube::Change<Node>& change) { on_node(change); });
    watch<Deployment>(
        kube::deployments, stores.deployments, kube::Projection<Deployment>(parse_deployment), ours,
        [this](const kube::Change<Deployment>& change) { add_service_of(meta_of(change), Priority::pod); });
    watch<Revision>(kube::controller_revisions, stores.revisions, kube::Projection<Revision>(parse_revision), ours,
                    [this](const kube::Change<Revision>& change) { add_service_of(meta_of(change), Priority::pod); });
    for (const auto& type : {kube::services, kube::config_maps, kube::service_accounts, rbac_roles, rbac_role_bindings,
                             kube::disruption_budgets, kube::network_policies}) {
      watch_child(type);
    }
    const Capabilities& can = context.capabilities;
    const std::pair<bool, kube::ResourceType> optional[] = {{can.pod_groups, kube::pod_groups},
                                                            {can.kai, kube::kai_pod_groups},
                                                            {can.volcano, kube::volcano_pod_groups},
                                                            {can.resource_claims, kube::resource_claims},
                                                            {can.resource_claims, kube::resource_claim_templates},
                                                            {can.compute_domains, kube::compute_domains},
                                                            {can.http_routes, kube::http_routes},
                                                            {can.inference_pools, kube::inference_pools}};
    for (const auto& [is_served, type] : optional) {
      if (is_served) watch_child(type);
    }
  }

  void watch_child(const kube::ResourceType& type) {
    stores.add_children({type});
    watch<Child>(type, stores.children.at(type_name(type)), kube::Projection<Child>(parse_child), ours,
                 [this](const kube::Change<Child>& change) {
                   if (!is_edit(change)) return;  // nobody looks at a child's status
                   add_group_of(meta_of(change), Priority::pod);
                   if (!meta_of(change).labels.contains(label::group)) add_service_of(meta_of(change), Priority::pod);
                 });
  }

  bool is_synced() const {
    return std::all_of(watches.begin(), watches.end(), [](const Watch& one) { return one.is_synced(); });
  }
  std::vector<std::string> unsynced() const {
    std::vector<std::string> kinds;
    for (const auto& one : watches) {
      if (!one.is_synced()) kinds.push_back(one.kind);
    }
    return kinds;
  }

  std::vector<Controller*> controllers() {
    std::vector<Controller*> all;
    for (auto* one : {&services, &groups, &scalers, &caches, &adapters, &node_caches, &topologies}) {
      if (*one) all.push_back(one->get());
    }
    return all;
  }

  /// A RoleScaler says whose it is; for any other key the question is idle.
  kube::Key service_of(const kube::Key& key) const {
    const auto* scaler = stores.scalers.find(key);
    return scaler == nullptr ? key : kube::Key{key.namespace_, scaler->spec.service_name};
  }

  struct Watch {
    std::string kind;
    std::function<bool()> is_synced;
    std::function<void()> start;
    std::shared_ptr<void> informer;
  };

  ShardContext context;
  std::string namespace_;
  ClusterDuty duty;
  Stores stores;
  Caches view;
  Figures figures{stores, context.clock, context.logger};
  std::vector<Watch> watches;
  std::unique_ptr<Controller> services, groups, scalers, caches, adapters, node_caches, topologies;
  async::TaskGroup tasks;
};

Shard::Shard(ShardContext context, std::string namespace_, ClusterDuty duty)
    : parts_(std::make_unique<Parts>(std::move(context), std::move(namespace_), duty)) {}

Shard::~Shard() = default;

void Shard::start() {
  for (const auto& watch : parts_->watches) watch.start();
  for (Controller* controller : parts_->controllers()) controller->start();
  parts_->tasks.spawn("figures", parts_->figures.run());
}

boost::asio::awaitable<void> Shard::stop(Duration grace) {
  for (Controller* controller : parts_->controllers()) co_await controller->stop(grace);
  co_await parts_->tasks.drain(Duration{});
}

std::vector<std::string> Shard::unsynced() const {
  return parts_->unsynced();
}

std::map<std::string, std::size_t> Shard::troubles() const {
  std::map<std::string, std::size_t> out;
  for (const auto* group : parts_->stores.groups.all()) {
    if (const auto reason = trouble_of(group->status); !reason.empty()) ++out[std::string(reason)];
  }
  return out;
}

std::map<std::string, std::size_t> Shard::service_troubles() const {
  std::map<std::string, std::size_t> out;
  for (const auto* service : parts_->stores.services.all()) {
    for (const std::string_view type : ctl::service_troubles) {
      if (is_troubled(service->status, type)) ++out[std::string(type)];
    }
  }
  return out;
}

void Shard::update_gauges() {
  for (Controller* controller : parts_->controllers()) controller->update_gauges();
}

}  // namespace penstock::ctl
