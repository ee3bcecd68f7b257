#include "worker/engine/engine.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/id.hpp"
#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"

namespace penstock::worker {

namespace {

std::uint64_t random_epoch() {
  std::uint64_t epoch = 0;
  while (epoch == 0) base::random_bytes(&epoch, sizeof epoch);
  return epoch;
}

}  // namespace

class Engine::Loop {
 public:
  Loop(const EngineConfig& config, Executor& executor, KvTransferPort* transfer, EngineSink& sink, const Clock& clock,
       EngineProbe* probe)
      : inbox_max_(config.inbox_max),
        step_limit_(config.step_limit),
        sink_(sink),
        clock_(clock),
        hasher_(config, executor.kv_pool().geometry.block_tokens),
        core_(config, executor, transfer, sink, clock, probe, hasher_, random_epoch()) {}

  ~Loop() { stop(); }

  void start() {
    thread_ = std::thread([this] { run(); });
    if (step_limit_ > Duration::zero()) watchdog_ = std::thread([this] { watch(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
    {
      const std::lock_guard lock(watch_mutex_);
      watches_ = false;
    }
    watch_ends_.notify_one();
    if (watchdog_.joinable()) watchdog_.join();
  }

  bool post(EngineCommand command) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      // Transfer events end pins and reservations: a lost one would leak blocks. Their number is bounded by chunks.
      const bool must_fit = std::holds_alternative<TransferEvent>(command);
      if (!must_fit && inbox_.size() >= inbox_max_) return false;
      inbox_.push_back(std::move(command));
    }
    wake_.notify_one();
    return true;
  }

  std::uint64_t epoch() const { return core_.epoch(); }

 private:
  void run() {
    std::vector<EngineCommand> commands;
    bool is_idle = false;
    while (take(commands, is_idle)) {
      for (EngineCommand& command : commands) core_.handle(std::move(command));
      commands.clear();
      const Result<bool> stepped = core_.step();
      if (!stepped) {
        break_down(stepped.error());
        return;
      }
      is_idle = !*stepped;
    }
    end_all(commands, make_error(ErrorCode::unavailable, "the worker is stopping"));
  }

  /// The watchdog's thread. It looks ten times within the limit.
  void watch() {
    std::unique_lock lock(watch_mutex_);
    while (!watch_ends_.wait_for(lock, step_limit_ / 10, [this] { return !watches_; })) {
      const std::optional<StuckStep> stuck = core_.find_stuck(step_limit_);
      if (stuck) return sink_.on_stuck(*stuck);
    }
  }

  /// Whoever was posted hears of its end, even if it never ran.
  void end_all(std::vector<EngineCommand>& commands, const Error& error) {
    for (EngineCommand& command : commands) core_.handle(std::move(command));
    commands.clear();
    core_.fail_all(error);
  }

  /// Moves the inbox out. When idle, first waits for a command or the time at which the core has something to do.
  bool take(std::vector<EngineCommand>& commands, bool is_idle) {
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return stopping_ || !inbox_.empty(); };
    if (is_idle) {
      const Duration wait = std::max(core_.wake_at() - clock_.now(), Duration::zero());
      wake_.wait_for(lock, std::min<Duration>(wait, std::chrono::hours(1)), has_work);
    }
    commands.swap(inbox_);
    return !stopping_;
  }

  void break_down(const Error& error) {
    std::vector<EngineCommand> commands;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;  // post() refuses from now on
      commands.swap(inbox_);
    }
    end_all(commands, make_error(ErrorCode::unavailable, "the worker's backend failed"));
    sink_.on_broken(error);
  }

  const std::size_t inbox_max_;
  const Duration step_limit_;
  EngineSink& sink_;
  const Clock& clock_;
  BlakePrefixHasher hasher_;
  EngineCore core_;  // the engine thread's, once it runs
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<EngineCommand> inbox_;  // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::thread thread_;
  std::mutex watch_mutex_;
  std::condition_variable watch_ends_;
  bool watches_ = true;  // guarded by watch_mutex_
  std::thread watchdog_;
};

Engine::Engine(EngineConfig config, Executor& executor, KvTransferPort* transfer, EngineSink& sink, const Clock& clock,
               EngineProbe* probe)
    : loop_(std::make_unique<Loop>(config, executor, transfer, sink, clock, probe)) {}

Engine::~Engine() = default;

void Engine::start() {
  loop_->start();
}
void Engine::stop() {
  loop_->stop();
}
bool Engine::post(EngineCommand command) {
  return loop_->post(std::move(command));
}
std::uint64_t Engine::epoch() const {
  return loop_->epoch();
}

}  // namespace penstock::worker
