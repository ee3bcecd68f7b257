// Writes events, best effort, one at a time, in order. emit() never waits: beyond `queue_max` unsent writes events are
// dropped and counted. Belongs to the client's executor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/kube/client/client.hpp"
#include "common/kube/core/event_series.hpp"
#include "common/log/logger.hpp"

namespace penstock::kube {

class Recorder {
 public:
  static constexpr std::size_t queue_max = 256;

  Recorder(asio::any_io_executor executor, Client& client, EventOptions options, std::uint64_t seed,
           log::Logger logger);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void emit(const EmitEvent& event);
  /// Spawn once into a TaskGroup; ends by cancellation.
  asio::awaitable<void> run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Any write: events go to the recorder and count as done.
asio::awaitable<ApiResult<json::Value>> execute(Client& client, Recorder& recorder, const Write& write,
                                                DryRun dry_run = DryRun::no);

}  // namespace penstock::kube
