// Runs a LeaseMachine against the API server, on a connection of its own to where the client goes: calls of the client
// may all be waiting. Belongs to one executor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/kube/client/client.hpp"
#include "common/kube/core/lease_machine.hpp"
#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"

namespace penstock::kube {

class LeaderElector {
 public:
  struct Callbacks {
    std::function<void()> on_started;  // we lead
    std::function<void()> on_stopped;  // we don't any more; stop writing before returning
  };

  LeaderElector(asio::any_io_executor executor, Client& client, LeaseOptions options, std::uint64_t seed,
                Callbacks callbacks, log::Logger logger, metrics::Gauge leading = {});
  ~LeaderElector();
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  /// Until released; or ends by cancellation, and then the lease runs out by itself.
  asio::awaitable<void> run();
  /// By the clock, so it turns false in time even if run() is stuck. Ask before every write.
  bool leading() const;
  std::string holder() const;
  /// Stops leading at once (on_stopped is called), then hands the lease over; run() returns when that is done.
  void release();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::kube
