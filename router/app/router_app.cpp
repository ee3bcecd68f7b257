#include "router/app/router_app.hpp"

#include <boost/asio/thread_pool.hpp>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "common/async/deadline.hpp"
#include "common/async/task_group.hpp"
#include "common/async/tls_facts.hpp"
#include "common/async/tls_renewal.hpp"
#include "common/base/id.hpp"
#include "common/config/key_file.hpp"
#include "common/config/load.hpp"
#include "common/http/admin.hpp"
#include "common/kube/client/find_config.hpp"
#include "common/protocol/ticket.hpp"
#include "router/app/gauges.hpp"
#include "router/app/version.hpp"
#include "router/backend/worker_pool.hpp"
#include "router/backend/workshop.hpp"
#include "router/discovery/file_watch.hpp"
#include "router/discovery/pod_watch.hpp"
#include "router/discovery/worker_list.hpp"
#include "router/server/public_api.hpp"

namespace penstock::router {
namespace {

namespace asio = boost::asio;

constexpr Duration tick_interval = std::chrono::milliseconds(50);
constexpr Duration watch_interval = std::chrono::seconds(1);
// A renewed Secret takes a kubelet about a minute to bring; certificates are renewed days before they end.
constexpr Duration certificate_interval = std::chrono::seconds(5);
// After readiness is off, balancers need a moment to notice before connections are refused.
constexpr Duration notice_time = std::chrono::milliseconds(200);

RegistrySettings registry_settings(const RouterConfig& config, std::uint64_t seed) {
  RegistrySettings settings;
  settings.formats = config.formats();
  settings.fleet = config.fleet_settings();
  settings.queue = config.queue_settings();
  if (!config.block_hash_key_file.empty()) {
    settings.hash_key = config::read_key_file_256(config.block_hash_key_file, "block-hash-key-file");
  }
  settings.token_cache.bytes_max = config.token_cache.bytes;
  settings.seed = seed;
  return settings;
}

async::TlsFiles tls_files(const config::TlsSettings& tls) {
  return {tls.cert_file.string(), tls.key_file.string(), tls.ca_file.string()};
}

async::TlsFiles tls_files(const config::PeerTlsSettings& tls) {
  async::TlsFiles files = tls_files(static_cast<const config::TlsSettings&>(tls));
  files.server_name = tls.peer_name;
  return files;
}

async::TlsContextPtr loaded(Result<async::TlsContextPtr> context) {
  if (!context) throw std::runtime_error(context.error().message);
  return *context;
}

// Signs for (P, D) of one transfer; without a key file workers ask for no ticket. Issue times are this router's own;
// see common/protocol/ticket.hpp.
TicketMaker ticket_maker(const RouterConfig& config, const Clock& clock) {
  if (config.ticket_key_file.empty()) return {};
  const std::string key = config::read_key_file(config.ticket_key_file, 16, "ticket-key-file");
  const std::uint64_t issuer = base::random_seed();
  const TimePoint start = clock.now();
  return [key, issuer, start, &clock](const TransferParties& parties) {
    protocol::Ticket ticket;
    ticket.transfer = parties.transfer;
    ticket.attempt = parties.attempt;
    ticket.prefill = parties.prefill;
    ticket.decode = parties.decode;
    ticket.issuer = issuer;
    ticket.issued_ms =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - start).count());
    return protocol::make_ticket(key, ticket);
  };
}

}  // namespace

struct RouterApp::Parts {
  Parts(asio::io_context& io_context, RouterConfig settings, log::Logger log)
      : io(io_context),
        config(std::move(settings)),
        logger(std::move(log)),
        random(config.seed != 0 ? config.seed : base::random_seed()),
        workshop(config.workshop_threads),
        registry(registry_settings(config, random.next())),
        proxy_probe(make_proxy_probe(metrics)),
        dispatcher(registry, clock, random, {config.limits.retry_share, 10, config.limits.retries}, proxy_probe,
                   config.decisions_kept),
        pool(io.get_executor(), BackendContext{registry, dispatcher, workshop, clock, backend, logger,
                                               make_backend_probe(metrics), random}),
        tenants(tenant_limits()),
        proxy(dispatcher, registry, tenants, workshop, clock, random, proxy_settings(), proxy_probe, logger),
        api(proxy, registry, tenants, workshop, clock,
            {config.cors_origins, config::is_loopback_address(config.address), std::string(version), api_limits()}),
        tasks(io.get_executor(), [this](std::string_view task, std::string_view what) {
          logger.error("task failed", {{"task", task}, {"reason", what}});
        }) {
    dispatcher.set_sender(pool);
    backend.router_id = to_string(random_id<InstanceId>());
    if (config.worker_tls.is_set()) backend.tls = loaded(async::make_tls_client(tls_files(config.worker_tls)));
    http::ServerOptions options;
    options.limits = config.server_limits();
    if (config.tls.is_set()) options.tls = loaded(async::make_tls_server(tls_files(config.tls)));
    watch_certificates(options.tls);
    server = std::make_unique<http::Server>(io.get_executor(), options, api.handler(), logger,
                                            http::make_server_probe(metrics, "public"));
    add_admin_pages();
    admin = std::make_unique<http::Server>(io.get_executor(), http::ServerOptions{}, admin_routes.handler(), logger,
                                           http::make_server_probe(metrics, "admin"));
  }

  /// Of a key; without keys all clients are one tenant, which only the queue bounds.
  TenantLimits tenant_limits() const {
    const bool has_keys = !config.api_keys_file.empty();
    return {has_keys ? config.limits.requests_per_key : UINT32_MAX, 0, 0};
  }

  /// When they end is shown for whoever may not read the Secrets: the operator makes a condition of it.
  void watch_certificates(const async::TlsContextPtr& own) {
    show_certificate_end({"clients", own});
    show_certificate_end({"workers", backend.tls});
    certificates.emplace(std::vector<async::TlsRenewal::Watched>{{"clients", own}, {"workers", backend.tls}},
                         certificate_interval,
                         [this](const async::TlsRenewal::Watched& watched, const Result<void>& outcome) {
                           if (!outcome) {
                             logger.error("certificate files are wrong, the last good ones are kept",
                                          {{"for", watched.name}, {"reason", outcome.error().message}});
                             return;
                           }
                           show_certificate_end(watched);
                           logger.info("certificate read again, new connections use it", {{"for", watched.name}});
                         });
  }

  void show_certificate_end(const async::TlsRenewal::Watched& watched) {
    const auto end = async::certificate_end_s(watched.tls);
    if (!end) return;
    if (watched.tls == backend.tls) {
      metrics.gauge("penstock_router_worker_tls_end_seconds", "When the certificate that workers see ends, Unix time.")
          .set(static_cast<double>(*end));
    } else {
      metrics.gauge("penstock_router_tls_end_seconds", "When the certificate that clients see ends, Unix time.")
          .set(static_cast<double>(*end));
    }
  }

  ApiLimits api_limits() const {
    ApiLimits limits;
    limits.n_max = config.limits.choices;
    limits.body_bytes_max = config.limits.body.bytes;
    return limits;
  }

  ProxySettings proxy_settings() {
    ProxySettings settings;
    settings.api = api_limits();
    settings.call.migration = config.migration_limits();
    settings.call.ticket = ticket_maker(config, clock);
    settings.call.output_bytes_max = config.limits.stream_buffer.bytes;
    settings.heartbeat = config.limits.heartbeat;
    settings.request_timeout = config.limits.request_timeout;
    settings.begins_traces = config.begin_traces;
    return settings;
  }

  void add_admin_pages() {
    metrics.add_process_metrics();
    const auto insecure =
        metrics.gauge("penstock_router_insecure_plaintext", "1 if --insecure-plaintext has opened the doors.");
    insecure.set(config.insecure_plaintext ? 1 : 0);
    add_fleet_gauges(metrics, registry, clock);
    http::add_admin_routes(admin_routes, {&metrics, [this] { return reasons(); }, config::to_yaml(config)});
    http::add_json_page(admin_routes, "/debug/routes", [this](const http::Request& request) {
      std::size_t count = config.decisions_kept;
      if (auto wanted = http::query_parameter(request.query, "n")) {
        std::from_chars(wanted->data(), wanted->data() + wanted->size(), count);
      }
      return dispatcher.decisions().to_json(count);
    });
    http::add_json_page(admin_routes, "/debug/workers",
                        [this](const http::Request&) { return workers_json(registry, clock.now()); });
  }

  std::vector<std::string> reasons() const {
    std::vector<std::string> all;
    if (api.is_draining()) all.emplace_back("the router is shutting down");
    bool can_serve = false;
    for (const auto& [name, model] : registry.models()) {
      const Readiness readiness = model->fleet.readiness();
      const bool is_ready = readiness.can_serve && model->text != nullptr;
      can_serve |= is_ready;
      if (is_ready) continue;
      for (const auto& reason : readiness.reasons) all.push_back("model " + name + ": " + reason);
      if (!model->text) {
        all.push_back("model " + name + ": " +
                      (model->problem.empty() ? "its tokenizer is being loaded" : model->problem));
      }
    }
    // One model that can be served is enough; what is wrong with others is in /debug/workers and the metrics.
    if (can_serve && !api.is_draining()) return {};
    for (auto& problem : pool.problems()) all.push_back(std::move(problem));
    if (pod_watch && !pod_watch->is_synced()) all.emplace_back("the API server has not yet said which pods there are");
    if (all.empty()) all.emplace_back("no worker is connected");
    return all;
  }

  asio::awaitable<void> tick_loop() {
    for (;;) {
      dispatcher.tick();
      co_await async::pause(tick_interval);
    }
  }

  void set_workers(const std::vector<std::string>& addresses) {
    listed_workers.clear();
    for (const auto& address : addresses) listed_workers.push_back({address, {}, false});
    set_targets();
  }

  void set_targets() {
    std::vector<WorkerTarget> targets = listed_workers;
    targets.insert(targets.end(), pod_workers.begin(), pod_workers.end());
    pool.set_targets(targets);
  }

  void watch_pods() {
    const KubernetesSettings& settings = config.discovery.kubernetes;
    if (settings.selector.empty()) return;
    auto cluster =
        kube::find_cluster_config({settings.kubeconfig.string(), settings.context}, config::process_environment());
    if (!cluster) throw std::runtime_error("discovery.kubernetes: " + cluster.error().message);
    PodWatchOptions options{settings.namespace_.empty() ? cluster->namespace_ : settings.namespace_, settings.selector,
                            settings.worker_port};
    pod_watch = std::make_unique<PodWatch>(io.get_executor(), std::move(*cluster), std::move(options), metrics, logger,
                                           random.next(), [this](const std::vector<WorkerTarget>& targets) {
                                             logger.info("worker pods changed", {{"workers", targets.size()}});
                                             pod_workers = targets;
                                             set_targets();
                                           });
    tasks.spawn("watch pods", pod_watch->run());
  }

  void apply_workers(const std::string& text) {
    auto listed = parse_worker_list(text);
    if (!listed) {
      logger.error("worker file is wrong, the last good one is kept", {{"reason", listed.error().message}});
      return;
    }
    logger.info("worker file read", {{"workers", listed->size()}});
    listed->insert(listed->end(), config.worker.begin(), config.worker.end());
    set_workers(*listed);
  }

  asio::awaitable<void> watch_workers() {
    FileWatch watch(config.worker_file.string());
    for (std::string last_problem;;) {
      auto contents = co_await run_in(workshop, [&] { return watch.poll(); });
      const std::string problem = contents ? std::string() : contents.error().message;
      if (contents && *contents) apply_workers(**contents);
      if (problem != last_problem && !problem.empty()) {
        logger.error("worker file can't be read, the last good one is kept", {{"reason", problem}});
      }
      last_problem = problem;
      co_await async::pause(watch_interval);
    }
  }

  asio::awaitable<void> watch_keys(FileWatch watch) {
    for (std::string last_problem;;) {
      co_await async::pause(watch_interval);
      auto contents = co_await run_in(workshop, [&] { return watch.poll(); });
      const std::string problem = contents ? std::string() : contents.error().message;
      if (problem != last_problem && !problem.empty()) {
        logger.error("key file can't be read, the last good one is kept", {{"reason", problem}});
      }
      last_problem = problem;
      if (!contents || !*contents) continue;
      auto keys = ApiKeys::parse(**contents, {config.limits.requests_per_key, 0, 0});
      if (!keys) {
        logger.error("key file is wrong, the last good one is kept", {{"reason", keys.error().message}});
        continue;
      }
      logger.info("key file read", {{"keys", keys->size()}});
      api.set_keys(std::move(*keys));
    }
  }

  // Without keys that are known to be good the port is not opened.
  void load_keys() {
    if (config.api_keys_file.empty()) return;
    FileWatch watch(config.api_keys_file.string());
    auto contents = watch.poll();
    if (!contents) throw std::runtime_error(contents.error().message);
    auto keys = ApiKeys::parse(contents->value_or(""), {config.limits.requests_per_key, 0, 0});
    if (!keys) throw std::runtime_error(config.api_keys_file.string() + ": " + keys.error().message);
    api.set_keys(std::move(*keys));
    tasks.spawn("watch keys", watch_keys(std::move(watch)));
  }

  asio::io_context& io;
  const RouterConfig config;
  log::Logger logger;
  SteadyClock clock;
  Random random;
  metrics::Registry metrics;
  asio::thread_pool workshop;
  BackendSettings backend;
  ModelRegistry registry;
  ProxyProbe proxy_probe;
  Dispatcher dispatcher;
  WorkerPool pool;
  TenantLimiter tenants;
  Proxy proxy;
  PublicApi api;
  http::Routes admin_routes;
  std::unique_ptr<http::Server> server, admin;
  std::vector<WorkerTarget> listed_workers, pod_workers;
  std::unique_ptr<PodWatch> pod_watch;
  async::TaskGroup tasks;
  std::uint16_t port = 0, admin_port = 0;
  std::optional<async::TlsRenewal> certificates;  // last: its thread uses what is above
};

RouterApp::RouterApp(asio::io_context& io, RouterConfig config, log::Logger logger)
    : parts_(std::make_unique<Parts>(io, std::move(config), std::move(logger))) {
  parts_->load_keys();
  parts_->watch_pods();
}

RouterApp::~RouterApp() {
  parts_->workshop.stop();
  parts_->workshop.join();
}

Result<void> RouterApp::start() {
  Parts& parts = *parts_;
  PENSTOCK_TRY(parts.admin_port, parts.admin->listen(parts.config.admin_address, parts.config.admin_port));
  PENSTOCK_TRY(parts.port, parts.server->listen(parts.config.address, parts.config.port));
  if (parts.config.insecure_plaintext) {
    parts.logger.warn("insecure-plaintext is on: anybody who reaches this address may use it",
                      {{"address", parts.config.address}});
  }
  parts.set_workers(parts.config.worker);
  parts.tasks.spawn("tick", parts.tick_loop());
  if (!parts.config.worker_file.empty()) parts.tasks.spawn("watch workers", parts.watch_workers());
  parts.logger.info("router started", {{"address", parts.config.address},
                                       {"port", parts.port},
                                       {"admin_port", parts.admin_port},
                                       {"version", version}});
  return {};
}

asio::awaitable<void> RouterApp::drain() {
  Parts& parts = *parts_;
  parts.api.drain();
  parts.logger.info("draining", {{"requests", parts.proxy.active()}});
  co_await async::pause(notice_time);
  const std::size_t cancelled = co_await parts.server->drain(parts.config.drain_grace);
  co_await parts.tasks.drain(Duration{});
  co_await parts.pool.stop();
  co_await parts.admin->drain(Duration{});
  parts.logger.info("router stopped", {{"cancelled", cancelled}});
}

std::uint16_t RouterApp::port() const {
  return parts_->port;
}
std::uint16_t RouterApp::admin_port() const {
  return parts_->admin_port;
}
std::vector<std::string> RouterApp::not_ready_reasons() const {
  return parts_->reasons();
}

std::size_t RouterApp::ready_workers() const {
  std::size_t count = 0;
  for (const auto& [name, model] : parts_->registry.models()) {
    for (const auto& view : model->fleet.workers(parts_->clock.now()))
      count += view.state == WorkerState::ready ? 1 : 0;
  }
  return count;
}

}  // namespace penstock::router
