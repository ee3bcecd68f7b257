// Ranks as threads of one process: the Collective of the CPU executor and of tests. Data moves by reading the other
// ranks' buffers between two barriers. The group owns the shared state and must outlive its ranks' calls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "worker/comm/collective.hpp"

namespace penstock::worker {

class ThreadGroup {
 public:
  ThreadGroup(std::uint32_t ranks, std::chrono::milliseconds deadline);
  ~ThreadGroup();

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(members_.size()); }
  Collective& rank(std::uint32_t index);

  /// What each rank came to last, for a log. From any thread.
  std::string state() const;
  /// Makes all present and future calls of all ranks fail with this error; the first one stays.
  void fail(Error error);

 private:
  class Member;
  /// Waits for all ranks. `operation` names the collective for the error.
  Result<void> meet(std::uint32_t rank, const char* operation);
  std::string absent_ranks() const;

  std::chrono::milliseconds deadline_;
  mutable std::mutex mutex_;
  std::condition_variable met_;
  std::vector<std::uint64_t> arrivals_;  // per rank: meetings it has come to
  std::vector<const char*> operations_;  // per rank: what it came for
  std::uint64_t meetings_ = 0;           // completed
  std::uint32_t present_ = 0;            // at the current meeting
  std::optional<Error> failure_;
  std::vector<const void*> shared_;  // per rank: what it publishes for the current operation
  std::vector<std::size_t> sizes_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace penstock::worker
