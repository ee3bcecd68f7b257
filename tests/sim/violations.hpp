// What the checkers found, and how much happened at all: a run in which nothing happens proves nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::sim {

struct Tally {
  std::uint64_t requests = 0, completed = 0, cancelled = 0, failed = 0, cut = 0, late = 0;
  std::uint64_t tokens = 0, cached_tokens = 0;
  std::uint64_t retries = 0, migrations = 0, reoffers = 0, repeats = 0, refusals = 0, queued = 0;
  std::uint64_t splits = 0, sends_committed = 0, sends_expired = 0, chunks_invalid = 0, reads_failed = 0;
  std::uint64_t preempted = 0, planned_ahead = 0, evicted = 0, snapshots = 0;
  std::uint64_t crashes = 0, freezes = 0, cuts = 0;
  std::uint64_t events = 0;
};

class Violations {
 public:
  void add(std::string what) {
    if (list_.size() < 20) list_.push_back(std::move(what));
    ++count_;
  }
  bool is_empty() const { return count_ == 0; }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
  std::uint64_t count_ = 0;
};

}  // namespace penstock::sim
