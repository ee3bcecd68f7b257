#include "operator/app/operator_app.hpp"

#include <csignal>
#include <map>
#include <optional>
#include <stdexcept>

#include "common/async/deadline.hpp"
#include "common/async/task_group.hpp"
#include "common/base/id.hpp"
#include "common/config/load.hpp"
#include "common/http/admin.hpp"
#include "common/http/server.hpp"
#include "common/kube/client/find_config.hpp"
#include "common/kube/client/leader_elector.hpp"
#include "common/kube/client/recorder.hpp"
#include "common/kube/model/object_meta.hpp"
#include "operator/app/discovery.hpp"
#include "operator/app/shard.hpp"
#include "operator/app/version.hpp"
#include "operator/core/group.hpp"
#include "operator/core/service_troubles.hpp"

namespace penstock::ctl {

namespace asio = boost::asio;

namespace {

constexpr Duration gauge_interval = std::chrono::seconds(5);  // they walk over everything
constexpr Duration discovery_retry = std::chrono::seconds(2);
constexpr Duration release_grace = std::chrono::seconds(2);

std::string environment(const std::string& name) {
  return config::process_environment()(name).value_or("");
}

/// The pod's name, so that people find the leader, and a random part, so that a restart is somebody else.
std::string identity(Random& random) {
  std::string name = environment("POD_NAME");
  if (name.empty()) name = "penstock-operator";
  return name + "_" + std::to_string(random.next() % 1'000'000'000);
}

kube::ClusterConfig cluster_of(const OperatorConfig& config) {
  auto found = kube::find_cluster_config({config.cluster.kubeconfig.string(), config.cluster.context},
                                         config::process_environment());
  if (!found) throw std::runtime_error(found.error().message);
  return std::move(*found);
}

kube::ClientOptions client_options(std::uint64_t seed) {
  kube::ClientOptions options;
  options.user_agent = "penstock-operator/" + std::string(version);
  options.seed = seed;
  return options;
}

/// Writes as the leader, and only as the leader.
class LeaderWriter final : public Writer {
 public:
  LeaderWriter(kube::Client& client, kube::Recorder& recorder) : client_(client), recorder_(recorder) {}
  void set_elector(const kube::LeaderElector& elector) { elector_ = &elector; }

  asio::awaitable<kube::ApiResult<json::Value>> write(const kube::Write& write) override {
    return kube::execute(client_, recorder_, write);
  }
  asio::awaitable<std::optional<std::uint64_t>> newest_version(const kube::ResourceType& type,
                                                               const std::string& namespace_) override {
    std::string path = type.path(namespace_) + "?limit=1";
    auto list = co_await client_.get_path(std::move(path));
    if (!list || !list->is_object()) co_return std::nullopt;
    const auto version = kube::text_at(list->as_object(), {"metadata", "resourceVersion"});
    co_return version ? std::optional(kube::parse_version(*version)) : std::nullopt;
  }
  bool may_write() const override { return elector_ != nullptr && elector_->leading(); }

 private:
  kube::Client& client_;
  kube::Recorder& recorder_;
  const kube::LeaderElector* elector_ = nullptr;
};

}  // namespace

struct OperatorApp::Parts {
  Parts(asio::io_context& io_context, OperatorConfig settings, log::Logger log)
      : io(io_context),
        config(std::move(settings)),
        logger(std::move(log)),
        random(config.seed != 0 ? config.seed : base::random_seed()),
        cluster(cluster_of(config)),
        client(io.get_executor(), cluster, client_options(random.next()), kube::make_probe(metrics), logger),
        recorder(io.get_executor(), client, event_options(), random.next(), logger),
        writer(client, recorder),
        elector(io.get_executor(), client, lease_options(), random.next(), callbacks(), logger,
                metrics.gauge("penstock_operator_leading", "1 while this process leads.")),
        tasks(io.get_executor(), [this](std::string_view task, std::string_view what) {
          logger.error("task failed", {{"task", task}, {"reason", what}});
        }) {
    writer.set_elector(elector);
    for (const std::string_view reason : troubles) {
      trouble_gauges.push_back(metrics.gauge("penstock_operator_troubled_groups",
                                             "Groups that somebody has to do something about, by reason.",
                                             {{"reason", std::string(reason)}}));
    }
    for (const std::string_view type : service_troubles) {
      service_gauges.push_back(metrics.gauge("penstock_operator_troubled_services",
                                             "Services that somebody has to do something about, by bad condition.",
                                             {{"condition", std::string(type)}}));
    }
    metrics.add_process_metrics();
    http::add_admin_routes(admin_routes, {&metrics, [this] { return not_ready(); }, config::to_yaml(config)});
    admin = std::make_unique<http::Server>(io.get_executor(), http::ServerOptions{}, admin_routes.handler(), logger,
                                           http::make_server_probe(metrics, "admin"));
  }

  kube::EventOptions event_options() {
    kube::EventOptions options;
    options.instance = name = identity(random);
    return options;
  }
  kube::LeaseOptions lease_options() const {
    kube::LeaseOptions options;
    std::string where = config.lease_namespace.empty() ? environment("POD_NAMESPACE") : config.lease_namespace;
    if (where.empty()) where = cluster.namespace_;
    options.key = {where, config.lease_name};
    options.identity = name;
    return options;
  }
  kube::LeaderElector::Callbacks callbacks() {
    // A leader begins with caches that are read past every other cache, so that it knows all that the last one wrote.
    // One that leads no more ends: what it knows is of no use, and a fresh process stands by.
    return {[this] { start_shards(); },
            [this] {
              if (!draining) std::raise(SIGTERM);
            }};
  }

  std::vector<std::string> not_ready() const {
    if (!is_discovered) return {"the API server has not yet said what it serves"};
    std::vector<std::string> reasons;
    for (const auto& shard : shards) {
      for (const auto& kind : shard->unsynced()) reasons.push_back("the cache of " + kind + " is not filled yet");
    }
    return reasons;
  }

  asio::awaitable<void> begin() {
    for (std::string said;;) {
      auto found = co_await discover(client);
      if (found) {
        capabilities = limit_to(*found, config.gang_backend);
        is_discovered = true;
        break;
      }
      if (said != found.error().message) logger.warn("API server not reached", {{"reason", found.error().message}});
      said = found.error().message;
      co_await async::pause(discovery_retry);
    }
    logger.info("operator started", {{"version", version},
                                     {"pod_groups", capabilities.pod_groups},
                                     {"kai", capabilities.kai},
                                     {"volcano", capabilities.volcano}});
    tasks.spawn("leader election", elector.run());
    tasks.spawn("discovery", rediscover());
  }

  void start_shards() {
    std::vector<std::string> served = config.namespaces;
    if (served.empty()) served.emplace_back();
    for (const auto& one : served) {
      const ClusterDuty duty = shards.empty() ? ClusterDuty::topologies_and_nodes : ClusterDuty::none;
      const ShardContext context{io.get_executor(),
                                 client,
                                 writer,
                                 clock,
                                 random,
                                 metrics,
                                 logger,
                                 capabilities,
                                 {config.router_image, config.worker_image},
                                 config.workers};
      shards.push_back(std::make_unique<Shard>(context, one, duty));
      shards.back()->start();
    }
    logger.info("serving", {{"namespaces", config.namespaces.empty() ? "all" : std::to_string(served.size())}});
  }

  /// A scheduler that was installed meanwhile needs watches that this process has not: a fresh one starts with them.
  asio::awaitable<void> rediscover() {
    for (;;) {
      co_await async::pause(config.discovery_interval);
      auto found = co_await discover(client);
      if (!found) continue;
      if (limit_to(*found, config.gang_backend) == capabilities) continue;
      logger.warn("the cluster serves other APIs than before: starting anew");
      std::raise(SIGTERM);
      co_return;
    }
  }

  asio::awaitable<void> refresh_gauges() {
    for (;;) {
      std::map<std::string, std::size_t> troubled, bad;
      for (auto& shard : shards) {
        shard->update_gauges();
        for (const auto& [reason, count] : shard->troubles()) troubled[reason] += count;
        for (const auto& [type, count] : shard->service_troubles()) bad[type] += count;
      }
      for (std::size_t i = 0; i < service_troubles.size(); ++i) {
        service_gauges[i].set(static_cast<double>(bad[std::string(service_troubles[i])]));
      }
      for (std::size_t i = 0; i < troubles.size(); ++i) {
        trouble_gauges[i].set(static_cast<double>(troubled[std::string(troubles[i])]));
      }
      co_await async::pause(gauge_interval);
    }
  }

  asio::io_context& io;
  const OperatorConfig config;
  log::Logger logger;
  SteadyClock clock;
  Random random;
  metrics::Registry metrics;
  std::string name;
  kube::ClusterConfig cluster;
  kube::Client client;
  kube::Recorder recorder;
  LeaderWriter writer;
  kube::LeaderElector elector;
  Capabilities capabilities;
  bool is_discovered = false, draining = false;
  std::vector<std::unique_ptr<Shard>> shards;
  std::vector<metrics::Gauge> trouble_gauges;  // by troubles
  std::vector<metrics::Gauge> service_gauges;  // by service_troubles
  http::Routes admin_routes;
  std::unique_ptr<http::Server> admin;
  async::TaskGroup tasks;
};

OperatorApp::OperatorApp(asio::io_context& io, OperatorConfig config, log::Logger logger)
    : parts_(std::make_unique<Parts>(io, std::move(config), std::move(logger))) {}

OperatorApp::~OperatorApp() = default;

Result<void> OperatorApp::start() {
  Parts& parts = *parts_;
  if (auto port = parts.admin->listen(parts.config.admin_address, parts.config.admin_port); !port) return port.error();
  parts.tasks.spawn("events", parts.recorder.run());
  parts.tasks.spawn("gauges", parts.refresh_gauges());
  parts.tasks.spawn("begin", parts.begin());
  return {};
}

asio::awaitable<void> OperatorApp::drain() {
  Parts& parts = *parts_;
  parts.draining = true;
  parts.logger.info("stopping", {{"leading", parts.elector.leading()}});
  for (auto& shard : parts.shards) co_await shard->stop(parts.config.drain_grace);
  parts.elector.release();
  // The election ends by itself when the lease is handed over.
  co_await parts.tasks.drain(release_grace);
  co_await parts.admin->drain(Duration{});
  parts.logger.info("operator stopped");
}

}  // namespace penstock::ctl
