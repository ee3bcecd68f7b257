#include "tests/sim/event_queue.hpp"

namespace penstock::sim {

void EventQueue::after(Duration delay, Task task) {
  const TimePoint time = now() + std::max(delay, Duration::zero());
  events_.emplace(Place{time, random_.next(), ++count_}, std::move(task));
}

bool EventQueue::run_one(TimePoint end) {
  if (events_.empty() || events_.begin()->first.time > end) {
    clock_.now_ = std::max(clock_.now_, end);
    return false;
  }
  auto node = events_.extract(events_.begin());
  clock_.now_ = node.key().time;
  node.mapped()();
  return true;
}

Duration EventQueue::between(Duration low, Duration high) {
  return low +
         Duration(static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>((high - low).count()) + 1)));
}

void Process::after(Duration delay, Task task) {
  events_.after(delay, [state = state_, task = std::move(task)]() mutable {
    if (state->is_dead) return;
    if (state->is_frozen) {
      state->deferred.push_back(std::move(task));
    } else {
      task();
    }
  });
}

void Process::thaw() {
  if (!state_->is_frozen) return;
  state_->is_thawing = true;
  // What came due meanwhile goes first, in its order.
  events_.after(Duration::zero(), [state = state_] {
    if (!state->is_thawing) return;
    state->is_frozen = state->is_thawing = false;
    while (!state->is_dead && !state->is_frozen && !state->deferred.empty()) {
      Task task = std::move(state->deferred.front());
      state->deferred.pop_front();
      task();
    }
  });
}

}  // namespace penstock::sim
