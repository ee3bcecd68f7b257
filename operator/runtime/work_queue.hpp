// Keys that want a reconcile. A key is held once however often it is added, is handed out to one worker at a time, and
// comes back after a delay or, after a failure, after its own exponential back-off. People's edits and lost pods
// overtake other pod events, which overtake the flood of a start; every sixteenth turn goes to the lowest priority that
// waits, so that none starves. Pod events that follow a look at their key wait until the key has rested for a while, so
// that a burst of them is one look. Owner: the strand of one controller; not thread-safe. Bounded by the number of
// distinct keys.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/kube/model/key.hpp"
#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::ctl {

enum class Priority : std::uint8_t { user, pod, sync };

struct BackOff {
  Duration first = std::chrono::milliseconds(5);
  Duration last = std::chrono::seconds(1000);
};

class WorkQueue {
 public:
  explicit WorkQueue(std::uint64_t seed, BackOff back_off = {}, Duration rest = {})
      : back_off_(back_off), rest_(rest), random_(seed) {}

  /// Wants a reconcile now. A key that waits already keeps its place or moves to the better priority; one that is
  /// being worked on is added again when that is done. With priority `pod` not before it has rested.
  void add(const kube::Key& key, Priority priority, TimePoint now);
  /// Wants one at `due`, with the priority of a sync; an earlier due of the same key stays.
  void add_at(const kube::Key& key, TimePoint due);
  /// After a failure: doubles the key's delay, up to 25 % of it by chance. Returns when it is due.
  TimePoint add_after_failure(const kube::Key& key, TimePoint now);
  /// After a success: the next failure starts from the first delay.
  void forget_failures(const kube::Key& key) { failures_.erase(key); }

  /// The next key to work on; it is not handed out again before done().
  std::optional<kube::Key> take(TimePoint now);
  /// `rest` in place of the queue's.
  void done(const kube::Key& key, TimePoint now, std::optional<Duration> rest = std::nullopt);
  /// When take() will have something, if it has nothing now.
  std::optional<TimePoint> next_due() const;

  std::size_t waiting() const { return waiting_.size(); }
  std::size_t delayed() const { return due_.size(); }
  std::uint32_t failures(const kube::Key& key) const;
  /// How long the key that has waited longest has done so.
  Duration oldest(TimePoint now) const;

 private:
  struct Waiting {
    Priority priority;
    TimePoint since;
    std::uint64_t ticket;  // a line entry with another ticket is stale
  };
  struct Entry {
    kube::Key key;
    std::uint64_t ticket;
  };
  using Line = std::deque<Entry>;

  void enqueue(const kube::Key& key, Priority priority, TimePoint since);
  void release_due(TimePoint now);
  void forget_rested(TimePoint now);
  std::optional<kube::Key> pop(Line& line);

  BackOff back_off_;
  Duration rest_;
  Random random_;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t turns_ = 0;
  std::array<Line, 3> lines_;
  std::unordered_map<kube::Key, Waiting> waiting_;
  std::unordered_map<kube::Key, std::optional<Priority>> running_;  // with the priority of an add meanwhile
  std::set<std::pair<TimePoint, kube::Key>> delays_;
  std::unordered_map<kube::Key, TimePoint> due_;
  std::unordered_map<kube::Key, std::uint32_t> failures_;
  std::unordered_map<kube::Key, TimePoint> rests_;  // until when
  std::set<std::pair<TimePoint, kube::Key>> rests_in_order_;
};

}  // namespace penstock::ctl
