// The worker's admin port. It answers from the first moment, so that who waits for a large model can see how far it is:
// /readyz says why the worker is not ready, and /metrics has the share that is loaded.
// Owner: run_worker. Thread: main, which is the I/O thread; set_load_progress() may come from the loading thread.
// Bounds: those of http::Server.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/http/routes.hpp"
#include "common/http/server.hpp"
#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"
#include "worker/app/config.hpp"

namespace penstock::worker {

enum class WorkerPhase : std::uint8_t { loading, starting, ready, draining };

class AdminPort {
 public:
  AdminPort(const WorkerConfig& config, const log::Logger& logger);

  /// The port. Throws std::runtime_error with one sentence if it is taken.
  std::uint16_t listen();
  /// Runs `work` on a thread of its own and serves this port meanwhile. Throws what `work` throws.
  void serve_while(const std::function<void()>& work);

  void set_phase(WorkerPhase phase) { phase_ = phase; }
  /// Bytes of the model that are packed; `total` may be 0.
  void set_load_progress(std::uint64_t done, std::uint64_t total);

  boost::asio::io_context& io() { return io_; }
  metrics::Registry& registry() { return registry_; }

 private:
  std::vector<std::string> not_ready_reasons() const;

  const WorkerConfig& config_;
  log::Logger logger_;
  metrics::Registry registry_;
  metrics::Gauge load_progress_;
  std::atomic<WorkerPhase> phase_{WorkerPhase::loading};
  std::atomic<std::uint32_t> load_percent_{0};
  boost::asio::io_context io_{1};
  http::Routes routes_;
  std::optional<http::Server> server_;
};

}  // namespace penstock::worker
