#include "operator/agent/agent_app.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "common/async/deadline.hpp"
#include "common/async/task_group.hpp"
#include "common/base/id.hpp"
#include "common/config/load.hpp"
#include "common/http/admin.hpp"
#include "common/http/server.hpp"
#include "common/kube/client/find_config.hpp"
#include "common/kube/client/watch_loop.hpp"
#include "common/kube/core/store.hpp"
#include "common/time/wall_clock.hpp"
#include "operator/agent/fetch_thread.hpp"
#include "operator/api/types.hpp"
#include "operator/app/version.hpp"
#include "operator/core/names.hpp"
#include "operator/runtime/projection.hpp"

namespace penstock::ctl {

namespace asio = boost::asio;

namespace {

constexpr Duration tick = std::chrono::seconds(1);

std::string node_of(const AgentConfig& config) {
  const auto named = config::process_environment()("NODE_NAME");
  const std::string node = config.node.empty() ? named.value_or("") : config.node;
  if (node.empty()) throw std::runtime_error("which node is this? Set NODE_NAME or --node.");
  return node;
}

kube::ClusterConfig cluster_of(const AgentConfig& config) {
  auto found = kube::find_cluster_config({config.cluster.kubeconfig.string(), config.cluster.context},
                                         config::process_environment());
  if (!found) throw std::runtime_error(found.error().message);
  return std::move(*found);
}

std::string token_of(const AgentConfig& config) {
  if (config.hub_token_file.empty()) return {};
  std::ifstream in(config.hub_token_file);
  std::string token;
  std::getline(in, token);
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  if (token.empty()) throw std::runtime_error(config.hub_token_file.string() + " has no token in it");
  return token;
}

FetchOptions fetch_options(const AgentConfig& config) {
  FetchOptions options;
  options.hub = config.hub;
  options.token = token_of(config);
  options.ca_file = config.ca_file.string();
  options.file_root = config.file_root.string();
  options.user_agent = "penstock-agent/" + std::string(version);
  return options;
}

AgentOptions agent_options(const AgentConfig& config) {
  AgentOptions options;
  options.host_path = config.host_path;
  options.token_secret = config.hub_token_secret;
  options.budget_bytes = bytes_of(config.budget);
  options.reserve_bytes = bytes_of(config.reserve);
  options.progress_s = std::chrono::duration_cast<std::chrono::seconds>(config.progress_interval).count();
  return options;
}

kube::ClientOptions client_options() {
  kube::ClientOptions options;
  options.connections_max = 2;
  options.user_agent = "penstock-agent/" + std::string(version);
  options.seed = base::random_seed();
  return options;
}

kube::Timestamp now() {
  return kube::Timestamp::from_seconds(wall_now().unix_s);
}

struct AgentProbe {
  explicit AgentProbe(metrics::Registry& registry)
      : fetched(registry.counter("penstock_agent_fetches_total", "Copies that were fetched.", {{"result", "done"}})),
        failed(registry.counter("penstock_agent_fetches_total", "Copies that were fetched.", {{"result", "failed"}})),
        removed(registry.counter("penstock_agent_removals_total", "Copies that were removed.")),
        writes(registry.counter("penstock_agent_status_writes_total", "Statuses that were written.")),
        held(registry.gauge("penstock_agent_held_bytes", "Bytes of the copies on this node.")),
        available(registry.gauge("penstock_agent_available_bytes", "What is free on the disk.")),
        done(registry.gauge("penstock_agent_fetch_done_bytes", "Bytes that the running fetch has.")),
        troubled(registry.gauge("penstock_agent_troubled_caches", "Caches that can't be fetched for now.")) {}
  metrics::Counter fetched, failed, removed, writes;
  metrics::Gauge held, available, done, troubled;
};

}  // namespace

struct AgentApp::Parts {
  Parts(asio::io_context& io, AgentConfig settings, log::Logger log)
      : config(std::move(settings)),
        logger(std::move(log)),
        node(node_of(config)),
        client(io.get_executor(), cluster_of(config), client_options(), kube::make_probe(metrics), logger),
        probe(metrics),
        disk(config.folder.string(), bytes_of(config.reserve)),
        agent(agent_options(config), base::random_seed()),
        fetcher(io.get_executor(), disk, fetch_options(config), [this](const auto& result) { on_done(result); }),
        tasks(io.get_executor(), [this](std::string_view task, std::string_view what) {
          logger.error("task failed", {{"task", task}, {"reason", what}});
        }) {
    if (auto usable = disk.check(); !usable) throw std::runtime_error(usable.error().message);
    kube::WatchOptions own;
    own.field_selector = "metadata.name=" + node;
    nodes_informer = std::make_unique<kube::Informer<api::NodeModelCache>>(
        client, api::node_model_caches, "", own, nodes, projection<api::NodeModelCache>(api::parse_node_model_cache),
        base::random_seed(), kube::make_cache_gauge(metrics, api::node_model_caches));
    caches_informer = std::make_unique<kube::Informer<api::ModelCache>>(
        client, api::model_caches, "", kube::WatchOptions(), caches,
        projection<api::ModelCache>(api::parse_model_cache), base::random_seed(),
        kube::make_cache_gauge(metrics, api::model_caches));
    nodes.observe([this](const kube::Change<api::NodeModelCache>& change) {
      // Our own status comes back as an event; the wish is what matters.
      const bool same = change.before != nullptr && change.after != nullptr &&
                        change.before->meta.generation == change.after->meta.generation &&
                        change.before->meta.uid == change.after->meta.uid;
      wish_changed |= !same;
    });
    caches.observe([this](const kube::Change<api::ModelCache>& change) {
      const bool same = change.before != nullptr && change.after != nullptr &&
                        change.before->meta.generation == change.after->meta.generation &&
                        change.before->meta.uid == change.after->meta.uid;
      wish_changed |= !same;
    });
    metrics.add_process_metrics();
    http::add_admin_routes(admin_routes, {&metrics, [this] { return not_ready(); }, config::to_yaml(config)});
    admin = std::make_unique<http::Server>(io.get_executor(), http::ServerOptions{}, admin_routes.handler(), logger,
                                           http::make_server_probe(metrics, "admin"));
  }

  std::vector<std::string> not_ready() const {
    std::vector<std::string> reasons;
    if (!nodes.synced()) reasons.emplace_back("the wish of this node is not read yet");
    if (!caches.synced()) reasons.emplace_back("the model caches are not read yet");
    return reasons;
  }

  asio::awaitable<void> work() {
    agent.on_found(disk.copies(), disk.begun());
    logger.info("agent started", {{"version", version}, {"node", node}, {"copies", agent.held().size()}});
    for (;;) {
      if (not_ready().empty()) {
        step();
        co_await write_status();
      }
      co_await async::pause(tick);
    }
  }

  void step() {
    if (std::exchange(wish_changed, false)) take_wish();
    if (const auto figures = disk.figures()) agent.on_disk(figures->capacity_bytes, figures->available_bytes);
    agent.on_progress(fetcher.progress().bytes_done, fetcher.progress().bytes);
    if (agent.is_superseded()) fetcher.cancel();
    if (auto task = agent.next(now())) {
      const bool fetches = task->kind == AgentTask::Kind::fetch;
      logger.info(fetches ? "fetching" : "removing", {{"cache", task->cache}, {"uri", task->uri}});
      running = *task;
      fetcher.start(std::move(*task));
    }
    update_gauges();
  }

  void take_wish() {
    const auto* own = nodes.find({"", node});
    agent.on_wish(own, caches.all(), now());
    for (const auto& [id, copy] : agent.held()) {
      // What is wished for is in use; the time of its record is what tells the longest unused from the others.
      const bool wished =
          own != nullptr && std::find(own->spec.caches.begin(), own->spec.caches.end(), id) != own->spec.caches.end();
      if (wished) disk.touch(id);
    }
  }

  void on_done(const Result<HeldCopy>& result) {
    if (!result) {
      if (result.error().code != ErrorCode::aborted) {
        probe.failed.increment();
        logger.warn("task failed", {{"cache", running.cache}, {"reason", result.error().message}});
      }
      agent.on_progress(fetcher.progress().bytes_done, fetcher.progress().bytes);
      agent.on_failed(result.error(), now());
    } else if (running.kind == AgentTask::Kind::fetch) {
      probe.fetched.increment();
      logger.info("fetched", {{"cache", running.cache}, {"digest", result->digest}, {"bytes", result->bytes}});
      agent.on_fetched(result->digest, result->bytes, now());
    } else {
      probe.removed.increment();
      agent.on_removed(now());
    }
  }

  asio::awaitable<void> write_status() {
    const auto* own = nodes.find({"", node});
    if (own == nullptr) co_return;
    const auto status = agent.status_to_write(now());
    if (!status) co_return;
    kube::ApplyStatus write;
    write.type = api::node_model_caches;
    write.key = own->meta.key();
    write.body = kube::make_object(write.type, write.key);
    write.body["metadata"].as_object()["uid"] = own->meta.uid;
    write.body["status"] = api::to_json(*status);
    write.field_manager = "penstock-agent";
    write.force = kube::Force::yes;
    const kube::Write one(std::move(write));
    auto answer = co_await client.execute(one);
    if (answer) {
      probe.writes.increment();
      agent.on_written(*status, now());
      co_return;
    }
    logger.warn("status not written", {{"reason", kube::to_string(answer.error())}});
    agent.on_write_failed();
  }

  void update_gauges() {
    std::int64_t bytes = 0;
    for (const auto& [id, copy] : agent.held()) bytes += copy.bytes;
    probe.held.set(static_cast<double>(bytes));
    if (const auto figures = disk.figures()) probe.available.set(static_cast<double>(figures->available_bytes));
    probe.done.set(static_cast<double>(fetcher.progress().bytes_done));
    probe.troubled.set(static_cast<double>(agent.failed()));
  }

  const AgentConfig config;
  log::Logger logger;
  const std::string node;
  metrics::Registry metrics;
  kube::Client client;
  AgentProbe probe;
  const Disk disk;
  NodeAgent agent;
  AgentTask running;
  FetchThread fetcher;
  kube::Store<api::NodeModelCache> nodes;
  kube::Store<api::ModelCache> caches;
  std::unique_ptr<kube::Informer<api::NodeModelCache>> nodes_informer;
  std::unique_ptr<kube::Informer<api::ModelCache>> caches_informer;
  bool wish_changed = true;
  http::Routes admin_routes;
  std::unique_ptr<http::Server> admin;
  async::TaskGroup tasks;
};

AgentApp::AgentApp(asio::io_context& io, AgentConfig config, log::Logger logger)
    : parts_(std::make_unique<Parts>(io, std::move(config), std::move(logger))) {}

AgentApp::~AgentApp() = default;

Result<void> AgentApp::start() {
  Parts& parts = *parts_;
  if (auto port = parts.admin->listen(parts.config.admin_address, parts.config.admin_port); !port) return port.error();
  parts.tasks.spawn("wishes", parts.nodes_informer->run());
  parts.tasks.spawn("caches", parts.caches_informer->run());
  parts.tasks.spawn("work", parts.work());
  return {};
}

asio::awaitable<void> AgentApp::drain() {
  Parts& parts = *parts_;
  parts.fetcher.cancel();  // what is on the disk is resumed by the next agent
  co_await parts.tasks.drain(Duration{});
  co_await parts.admin->drain(Duration{});
  parts.logger.info("agent stopped");
}

}  // namespace penstock::ctl
