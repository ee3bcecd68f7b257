// Time as a value. Cores take TimePoint arguments; only shells read a Clock, and tests and simulations own theirs.
#pragma once

#include <chrono>

namespace penstock {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

/// The machine's monotonic clock. Stateless; any thread.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override;
};

/// A clock that moves when told to. Owned by one test or simulation; not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{std::chrono::hours(1)};
};

}  // namespace penstock
