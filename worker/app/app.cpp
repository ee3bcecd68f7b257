#include "worker/app/app.hpp"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"
#include "common/async/tls.hpp"
#include "common/async/tls_renewal.hpp"
#include "common/config/key_file.hpp"
#include "worker/app/admin_port.hpp"
#include "worker/app/backend.hpp"
#include "worker/app/identity.hpp"
#include "worker/app/probes.hpp"
#include "worker/engine/engine.hpp"
#include "worker/server/control_server.hpp"
#include "worker/transfer/service.hpp"
#include "worker/transfer/ucx/ucx_transport.hpp"

namespace penstock::worker {
namespace {

// A renewed Secret takes a kubelet about a minute to bring; certificates are renewed days before they end.
constexpr Duration certificate_interval = std::chrono::seconds(5);

text::BlockHashKey block_hash_key(const WorkerConfig& config) {
  if (config.block_hash_key_file.empty()) return text::local_block_hash_key();
  return config::read_key_file_256(config.block_hash_key_file, "block-hash-key-file");
}

async::TlsContextPtr control_tls(const WorkerConfig& config) {
  if (!config.control_tls.is_set()) return nullptr;
  const auto& files = config.control_tls;
  auto context = async::make_tls_server({files.cert_file.string(), files.key_file.string(), files.ca_file.string()});
  if (!context) throw std::runtime_error(context.error().message);
  return *context;
}

/// Workers are clients and servers of each other: one certificate for both, one authority.
transfer::ChannelTls kv_tls(const WorkerConfig& config) {
  if (!config.kv_tls.is_set()) return {};
  const auto& files = config.kv_tls;
  const async::TlsFiles pem{files.cert_file.string(), files.key_file.string(), files.ca_file.string(), files.peer_name};
  auto server = async::make_tls_server(pem);
  if (!server) throw std::runtime_error("--kv-tls: " + server.error().message);
  auto client = async::make_tls_client(pem);
  if (!client) throw std::runtime_error("--kv-tls: " + client.error().message);
  return {*server, *client};
}

EngineConfig engine_config(const WorkerConfig& config, const LoadedModel& model, const text::BlockHashKey& key,
                           const text::BlockExtraKeys& extra) {
  EngineConfig engine;
  engine.step_tokens_max = config.step_tokens;
  engine.sequences_max = config.sequences;
  engine.waiting_max = config.waiting;
  engine.prefill_chunk_tokens_max = config.prefill_chunk_tokens;
  engine.prefix_cache = config.prefix_cache;
  // A step of a large model on few cores may take minutes.
  if (config.executor != ExecutorKind::cpu) engine.step_limit = config.step_limit;
  engine.eos_tokens = model.card.eos_tokens;
  engine.hash_key.assign(key.begin(), key.end());
  engine.hash_extra_keys = {extra.model_revision, extra.kv_dtype};
  return engine;
}

/// Everything that lives as long as the worker runs, in order of construction; destroyed in reverse.
class App {
 public:
  App(const WorkerConfig& config, log::Logger logger, AdminPort& admin, const text::BlockHashKey& key, Backend backend)
      : config_(config),
        logger_(std::move(logger)),
        admin_(admin),
        io_(admin.io()),
        key_(key),
        backend_(std::move(backend)),
        pool_(backend_.executor->kv_pool()),
        engine_metrics_(admin.registry(), backend_.decode_limit),
        transfer_metrics_(admin.registry(), logger_),
        tasks_(io_.get_executor()),
        identity_(make_identity(config, *backend_.model, *backend_.executor, pool_, key_)),
        control_tls_(control_tls(config)),
        kv_tls_(kv_tls(config)),
        certificates_({{"control", control_tls_},
                       {"kv, for peers that connect", kv_tls_.server},
                       {"kv, for peers that are dialled", kv_tls_.client}},
                      certificate_interval,
                      [this](const async::TlsRenewal::Watched& watched, const Result<void>& outcome) {
                        on_certificate(watched.name, outcome);
                      }) {
    make_transfer();
  }

  ~App() {
    if (transfer_) transfer_->stop();
    if (engine_) engine_->stop();
  }

  int run() {
    // The transfer service is started first: its self-test must pass before a router hears of this worker.
    if (transfer_) {
      transfer_->start();
      identity_.welcome.kv_address = transfer_->address();
    }
    control_.emplace(
        io_.get_executor(), control_options(), std::move(identity_), [this] { drain("a router asked"); }, logger_);
    control_->set_engine_events(
        [this] {
          drained_ = true;
          on_drained_.cancel();
        },
        [this](const Error& error) { broken(error); }, [this](const StuckStep& step) { stuck(step); });
    const auto extra = block_extra_keys(backend_.model->card, pool_.geometry.dtype);
    engine_ = std::make_unique<Engine>(engine_config(config_, *backend_.model, key_, extra), *backend_.executor,
                                       transfer_.get(), control_->sink(), clock_, &engine_metrics_);
    engine_->start();
    const auto port = control_->start(*engine_);
    if (!port) throw std::runtime_error(port.error().message);
    admin_.set_phase(WorkerPhase::ready);
    logger_.info("worker ready", {{"model", backend_.model->card.name},
                                  {"control_port", *port},
                                  {"kv_blocks", pool_.blocks},
                                  {"kv_transfer", transfer_ ? transfer_->address() : std::string("off")}});
    async::StopSignals signals(io_.get_executor(), [this] { drain("signal"); });
    io_.run();
    logger_.flush();
    return exit_code_;
  }

 private:
  ControlServerOptions control_options() const {
    ControlServerOptions options;
    options.address = config_.control_address;
    options.port = config_.control_port;
    options.tls = control_tls_;
    return options;
  }

  void make_transfer() {
    if (config_.kv_transfer == TransferKind::off) return;
    transfer::KvTransferConfig settings;
    settings.options.lease = config_.kv_lease;
    settings.instance = identity_.welcome.instance;
    settings.layout_fingerprint = identity_.welcome.kv_layout_fingerprint;
    if (!config_.ticket_key_file.empty())
      settings.ticket_key = config::read_key_file(config_.ticket_key_file, 16, "ticket-key-file");
    settings.listen_host = config_.kv_address;
    settings.listen_port = config_.kv_port;
    settings.tls = kv_tls_;
    settings.pool = pool_.base;
    settings.pool_file = pool_.file;
    device_pool_ = make_device_pool(pool_);
    settings.pool_device = device_pool_.get();
    settings.test_pools = device_pools_beside(pool_);
    settings.pool_blocks = pool_.blocks;
    settings.block_bytes = pool_.geometry.block_bytes();
    transfer::UcxOptions ucx;
    if (config_.kv_transfer == TransferKind::tcp) ucx.tls = "tcp,self";
    transfer_ = std::make_unique<transfer::KvTransferService>(
        std::move(settings), [ucx] { return transfer::make_ucx_transport(ucx); },
        // The engine exists before the first peer can send anything: peers hear of this worker through routers.
        [this](TransferEvent event) { engine_->post(std::move(event)); }, clock_, &transfer_metrics_);
  }

  /// On the renewal's thread.
  void on_certificate(const std::string& use, const Result<void>& outcome) {
    if (outcome) {
      logger_.info("certificate read again, new connections use it", {{"for", use}});
    } else {
      logger_.error("certificate files are wrong, the last good ones are kept",
                    {{"for", use}, {"reason", outcome.error().message}});
    }
  }

  void drain(const char* why) {
    if (std::exchange(draining_, true)) return;
    admin_.set_phase(WorkerPhase::draining);
    logger_.info("draining", {{"reason", why}});
    control_->announce_drain();
    engine_->post(DrainEngine{});
    if (transfer_) transfer_->drain();
    tasks_.spawn("drain", finish());
  }

  boost::asio::awaitable<void> finish() {
    on_drained_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(config_.drain_grace));
    boost::system::error_code cancelled_when_drained;
    if (!drained_) {
      co_await on_drained_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled_when_drained));
    }
    logger_.info(drained_ ? "drained" : "grace is over, running requests end");
    co_await control_->stop(std::chrono::seconds(2));
    io_.stop();
  }

  void broken(const Error& error) {
    logger_.error("the backend broke", {{"reason", error.message}});
    exit_code_ = 1;
    tasks_.spawn("break", leave());
  }

  /// Once routers have heard how their requests ended.
  boost::asio::awaitable<void> leave() {
    co_await control_->stop(std::chrono::seconds(2));
    io_.stop();
  }

  /// On the engine's watchdog. The engine's thread waits in the backend for ever, so nothing is joined or destroyed;
  /// routers see their connections close and go elsewhere.
  void stuck(const StuckStep& step) {
    logger_.error("a step takes too long; this process ends",
                  {{"step", step.number},
                   {"taken_s", std::chrono::duration<double>(step.taken).count()},
                   {"sequences", step.sequences},
                   {"decode_tokens", step.decode_tokens},
                   {"prefill_tokens", step.prefill_tokens},
                   {"steps_under_way", step.steps_under_way},
                   {"backend", step.backend.empty() ? std::string("says nothing") : step.backend}});
    logger_.flush();
    std::_Exit(1);
  }

  const WorkerConfig& config_;
  log::Logger logger_;
  AdminPort& admin_;
  boost::asio::io_context& io_;
  SteadyClock clock_;
  text::BlockHashKey key_;
  Backend backend_;
  KvPoolView pool_;
  EngineMetrics engine_metrics_;
  TransferMetrics transfer_metrics_;
  async::TaskGroup tasks_;
  boost::asio::steady_timer on_drained_{io_};
  WorkerIdentity identity_;
  async::TlsContextPtr control_tls_;
  transfer::ChannelTls kv_tls_;
  async::TlsRenewal certificates_;
  std::unique_ptr<transfer::DevicePool> device_pool_;      // of a GPU; null: the pool is host memory
  std::unique_ptr<transfer::KvTransferService> transfer_;  // posts to the engine until stopped
  std::optional<ControlServer> control_;
  std::unique_ptr<Engine> engine_;
  bool draining_ = false, drained_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run_worker(const WorkerConfig& config, const log::Logger& logger) {
  const text::BlockHashKey key = block_hash_key(config);
  AdminPort admin(config, logger);
  admin.listen();
  LoadedModel model;
  // On a thread of its own, so that nothing blocks the I/O thread. What only this process must know, such as the
  // affinity of threads, is set on the main thread afterwards.
  admin.serve_while([&] {
    model = load_backend_model(config, logger,
                               [&](std::uint64_t done, std::uint64_t total) { admin.set_load_progress(done, total); });
  });
  admin.set_phase(WorkerPhase::starting);
  Backend backend = make_backend(config, std::move(model));
  return App(config, logger, admin, key, std::move(backend)).run();
}

}  // namespace penstock::worker
