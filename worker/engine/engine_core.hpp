// The engine without its thread: commands in, sink calls out, one step at a time. The simulation drives it directly.
// Owner: Engine or a simulation. Thread: one. Bounds: those of the scheduler and the executor; commands that wait for
// the steps under way, at most two, are bounded by who gives them.
#pragma once

#include <optional>
#include <vector>

#include "worker/core/scheduler/scheduler.hpp"
#include "worker/engine/engine.hpp"

namespace penstock::worker {

class EngineCore {
 public:
  /// `epoch` names this life of the cache; never reuse one. The rest as for Engine.
  EngineCore(const EngineConfig& config, Executor& executor, KvTransferPort* transfer, EngineSink& sink,
             const Clock& clock, EngineProbe* probe, const PrefixHasher& hasher, std::uint64_t epoch);

  /// At once, or when the steps under way have ended: the next ones are not started before.
  void handle(EngineCommand command);
  /// Ends a step, if anything can run, and gives out what happened. An executor that takes two is given the next one
  /// before this one ends, but not before it must: whoever comes meanwhile would wait for both. False: nothing to do
  /// until the next command or wake_at(). An error means that the executor is broken; every request has been told.
  Result<bool> step();
  /// The next moment at which step() has something to do without a command.
  TimePoint wake_at() const;
  /// Ends every request.
  void fail_all(const Error& error);

  std::uint64_t epoch() const { return epoch_; }
  Scheduler& scheduler() { return scheduler_; }
  /// The step under way, if it has taken longer than `limit`. From any thread.
  std::optional<StuckStep> find_stuck(Duration limit) const;

 private:
  struct UnderWay {
    StepMeasure measure;
    TimePoint launched;
  };
  void execute(EngineCommand& command);
  bool start_step();
  void start_next();
  Result<void> end_step();
  void launch(const StepBatch& batch, Duration plan);
  TimePoint next_due() const;
  void watch_oldest(TimePoint since);
  void flush();
  void flush_events();
  std::vector<protocol::Progress> progress_due();
  void send_snapshot(std::uint64_t ticket);
  void send_load();
  void call_transfer(TransferAction action);
  void observe(const SchedulerOutput& output);
  void smooth_rates(const StepMeasure& measure);

  EngineConfig config_;
  Executor& executor_;
  KvTransferPort* transfer_;
  EngineSink& sink_;
  const Clock& clock_;
  EngineProbe* probe_;
  Scheduler scheduler_;
  std::vector<UnderWay> under_way_;      // oldest first
  std::vector<EngineCommand> commands_;  // that wait for them
  StepMeasure last_step_;
  StepWatch watch_;
  std::uint64_t steps_ended_ = 0;
  TimePoint last_end_{};
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
