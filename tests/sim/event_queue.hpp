// Simulated time: a clock that jumps from event to event, and processes whose events stop when they are killed and wait
// while they are frozen. Everything follows from the seed: events at one instant run in an order drawn from it.
// Owner: one World. Single thread. Bounds: the caller stops at a time.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::sim {

using Task = std::function<void()>;

class SimClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }

 private:
  friend class EventQueue;
  TimePoint now_{std::chrono::hours(1)};
};

/// One machine's clock: it runs at its own rate from its own beginning. Durations on it differ from the world's.
class SkewedClock final : public Clock {
 public:
  SkewedClock(const Clock& world, double rate, Duration offset)
      : world_(world), origin_(world.now()), rate_(rate), offset_(offset) {}
  TimePoint now() const override {
    const double gone = static_cast<double>((world_.now() - origin_).count()) * rate_;
    return origin_ + offset_ + Duration(static_cast<Duration::rep>(gone));
  }
  /// How long the world takes until this clock shows `time`.
  Duration until(TimePoint time) const {
    return Duration(static_cast<Duration::rep>(static_cast<double>((time - now()).count()) / rate_) + 1);
  }

 private:
  const Clock& world_;
  TimePoint origin_;
  double rate_;
  Duration offset_;
};

class EventQueue {
 public:
  explicit EventQueue(std::uint64_t seed) : random_(seed) {}

  const Clock& clock() const { return clock_; }
  TimePoint now() const { return clock_.now(); }
  Random& random() { return random_; }
  std::uint64_t count() const { return count_; }

  void after(Duration delay, Task task);
  /// Runs the next event if it is due by `end`; otherwise moves the clock there and returns false.
  bool run_one(TimePoint end);

  Duration between(Duration low, Duration high);
  bool chance(double probability) { return probability > 0 && random_.uniform() < probability; }

 private:
  struct Place {
    TimePoint time;
    std::uint64_t tie = 0;
    std::uint64_t order = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  SimClock clock_;
  Random random_;
  std::map<Place, Task> events_;
  std::uint64_t count_ = 0;
};

/// What a kill -9 ends and a SIGSTOP stops. Its tasks run only while it lives and is not frozen.
class Process {
 public:
  explicit Process(EventQueue& events) : events_(events), state_(std::make_shared<State>()) {}
  ~Process() { state_->is_dead = true; }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void after(Duration delay, Task task);
  void freeze() {
    state_->is_frozen = true;
    state_->is_thawing = false;
  }
  void thaw();
  bool is_frozen() const { return state_->is_frozen; }

 private:
  struct State {
    bool is_dead = false;
    bool is_frozen = false;
    bool is_thawing = false;
    std::deque<Task> deferred;
  };
  EventQueue& events_;
  std::shared_ptr<State> state_;  // shared with queued events, which outlive the process
};

/// Keeps the order of what goes one way, whatever the delays.
class Lane {
 public:
  Duration delay(TimePoint now, Duration wanted) {
    last_ = std::max(last_ + Duration(1), now + wanted);
    return last_ - now;
  }

 private:
  TimePoint last_{};
};

}  // namespace penstock::sim
