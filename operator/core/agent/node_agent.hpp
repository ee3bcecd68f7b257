// What the agent of one node does next: fetch a cache, remove one, or wait; and what it tells of it. The operator's
// wish comes in, what disk and source say comes in, one task at a time goes out. The status is written at once for what
// people wait for and every few seconds for bytes. Pure: no clock, disk or network; one thread. Bounded: 64 caches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"
#include "operator/api/model_cache.hpp"

namespace penstock::ctl {

struct AgentOptions {
  std::string host_path = "/var/lib/penstock/models";  // what the agent's folder is called on the node
  std::string token_secret;                            // whose token the agent has
  std::int64_t budget_bytes = 0;                       // of all copies; 0: the disk is the limit
  std::int64_t reserve_bytes = 0;                      // of the disk, never filled
  std::int64_t progress_s = 5;                         // between two statuses that tell of bytes only
  std::int64_t retry_first_s = 10, retry_last_s = 600;
};

/// A copy on the disk, as its own record beside it says.
struct HeldCopy {
  std::string cache;  // "namespace/name"
  std::string uri, revision, digest;
  std::int64_t bytes = 0;
  kube::Timestamp last_used;  // in the wish
};

struct AgentTask {
  enum class Kind : std::uint8_t { fetch, remove };
  Kind kind = Kind::fetch;
  std::string cache;
  std::string uri, revision, digest;  // of a fetch
  std::int64_t bytes_max = 0;
};

class NodeAgent {
 public:
  NodeAgent(AgentOptions options, std::uint64_t seed) : options_(std::move(options)), random_(seed) {}

  /// At start, before anything else: complete copies on the disk, and how much there is of begun ones.
  void on_found(std::vector<HeldCopy> copies, std::map<std::string, std::int64_t> begun);
  /// The object of this node and the caches of the cluster, whenever one of them changes. Pointers are not kept.
  void on_wish(const api::NodeModelCache* node, const std::vector<const api::ModelCache*>& caches, kube::Timestamp now);
  void on_disk(std::int64_t capacity_bytes, std::int64_t available_bytes);

  /// What to do now. Nothing while a task runs.
  std::optional<AgentTask> next(kube::Timestamp now);
  /// The task that runs isn't wanted any more: end it, and say on_failed with code aborted.
  bool is_superseded() const;

  void on_progress(std::int64_t bytes_done, std::int64_t bytes);
  void on_fetched(const std::string& digest, std::int64_t bytes, kube::Timestamp now);
  /// Whatever the running task was. A partial copy stays on the disk and is resumed.
  void on_failed(const Error& error, kube::Timestamp now);
  void on_removed(kube::Timestamp now);

  /// The status to write now, if one is due.
  std::optional<api::NodeModelCacheStatus> status_to_write(kube::Timestamp now);
  /// It was taken, or refused: then it is due again.
  void on_written(const api::NodeModelCacheStatus& status, kube::Timestamp now);
  void on_write_failed() { written_.reset(); }

  const std::map<std::string, HeldCopy>& held() const { return held_; }
  std::size_t failed() const;
  std::size_t failures(const std::string& cache) const;

 private:
  struct Wanted {
    std::string uri, revision, digest;
    std::int64_t size = 0;
    std::string problem;  // why this agent can't fetch it; empty if it can
  };
  struct Trouble {
    std::string message;
    std::uint32_t count = 0;
    kube::Timestamp retry_at;
  };

  bool holds(const std::string& cache) const;
  AgentTask start(AgentTask task);
  std::int64_t missing(const std::string& cache, std::int64_t size) const;
  std::int64_t room() const;
  std::optional<std::string> to_remove(std::int64_t missing) const;
  api::NodeCacheEntry entry_of(const std::string& cache) const;
  api::NodeModelCacheStatus status(kube::Timestamp now) const;

  AgentOptions options_;
  Random random_;
  bool has_wish_ = false;
  std::int64_t generation_ = 0;
  std::map<std::string, Wanted> known_;  // every cache object
  std::vector<std::string> wish_;        // sorted; may name caches that are gone
  std::vector<std::string> pinned_;      // not evictable; sorted
  std::map<std::string, HeldCopy> held_;
  std::map<std::string, std::int64_t> begun_;  // bytes of copies that aren't complete
  std::map<std::string, Trouble> troubles_;
  std::vector<std::string> no_room_;
  std::optional<AgentTask> task_;
  std::int64_t task_done_ = 0, task_bytes_ = 0;
  std::int64_t capacity_ = 0, available_ = 0;
  std::map<std::string, kube::Timestamp> changed_;  // when an entry's state last changed
  std::map<std::string, api::CacheState> states_;
  std::optional<api::NodeModelCacheStatus> written_;
  kube::Timestamp written_at_;
};

}  // namespace penstock::ctl
