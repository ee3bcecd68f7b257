// What the engine's backend is at, and since when, for whoever finds that it takes too long. Written by the engine's
// thread, read by any.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "common/time/clock.hpp"

namespace penstock::worker {

struct StuckStep {
  std::uint64_t number = 0;  // of all steps of this process
  Duration taken{};
  std::uint32_t sequences = 0;
  std::uint32_t decode_tokens = 0;
  std::uint32_t prefill_tokens = 0;
  std::uint32_t steps_under_way = 0;  // with those started behind it
  std::string backend;                // Executor::state()
};

class StepWatch {
 public:
  /// `step` without its time is under way since `since`; nothing: none is.
  void set(std::optional<StuckStep> step, TimePoint since) {
    const std::lock_guard lock(mutex_);
    step_ = std::move(step);
    since_ = since;
  }
  /// The step under way, if it has taken longer than `limit`.
  std::optional<StuckStep> find_stuck(TimePoint now, Duration limit) const {
    const std::lock_guard lock(mutex_);
    if (!step_ || now - since_ <= limit) return std::nullopt;
    StuckStep stuck = *step_;
    stuck.taken = now - since_;
    return stuck;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<StuckStep> step_;
  TimePoint since_{};
};

}  // namespace penstock::worker
