// The engine without its thread: commands in, sink calls out, one step at a time. The simulation drives it directly.
// Owner: Engine or a simulation. Thread: one. Bounds: those of the scheduler and the executor.
#pragma once

#include <optional>

#include "worker/core/scheduler/scheduler.hpp"
#include "worker/engine/engine.hpp"

namespace penstock::worker {

class EngineCore {
 public:
  /// `epoch` names this life of the cache; never reuse one. The rest as for Engine.
  EngineCore(const EngineConfig& config, Executor& executor, KvTransferPort* transfer, EngineSink& sink,
             const Clock& clock, EngineProbe* probe, const PrefixHasher& hasher, std::uint64_t epoch);

  void handle(EngineCommand command);
  /// Runs one step, if anything can run, and gives out what happened. False: nothing to run until the next command or
  /// wake_at(). An error means that the executor is broken; every request has been told.
  Result<bool> step();
  /// The next moment at which step() has something to do without a command.
  TimePoint wake_at() const;
  /// Ends every request.
  void fail_all(const Error& error);

  std::uint64_t epoch() const { return epoch_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  void flush();
  void flush_events();
  std::vector<protocol::Progress> progress_due();
  void send_snapshot(std::uint64_t ticket);
  void send_load();
  void call_transfer(TransferAction action);
  void observe(const SchedulerOutput& output);
  void smooth_rates(Duration step);

  EngineConfig config_;
  Executor& executor_;
  KvTransferPort* transfer_;
  EngineSink& sink_;
  const Clock& clock_;
  EngineProbe* probe_;
  Scheduler scheduler_;
  std::uint64_t epoch_;
  std::uint64_t event_sequence_ = 0;
  std::uint64_t evictions_seen_ = 0;
  std::uint64_t requests_seen_ = 0;
  TimePoint load_due_, progress_due_;
  protocol::Load last_load_;
  float tokens_per_second_prefill_ = 0;
  float step_seconds_decode_ = 0;
  bool drained_said_ = false;
};

}  // namespace penstock::worker
