// The router's view of all workers of one model, and the one object that the proxy asks where a request should go.
// It joins membership, prefix index, load view and policy. Pure and synchronous: the owner (one thread or strand)
// passes the time in and carries out what is returned. Bounds: workers_max, index_bytes_max, predicted_blocks_max.
//
// A connection's life:  on_welcome -> (snapshot wanted? send SNAPSHOT_REQUEST) -> on_load, on_cache_events, on_snapshot
//                       ... -> on_draining? -> on_disconnect.
// A request's life:     choose -> placed: on_dispatched (before the bytes leave) -> on_first_token -> on_tokens ...
//                       -> on_finished or on_aborted, exactly one of them for each DispatchId (later ones are ignored).
// Messages about a WorkerRef of an older generation are ignored and counted (`stale_messages`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "router/core/index/snapshot_need.hpp"
#include "router/core/membership/worker.hpp"
#include "router/core/policy/placement.hpp"
#include "router/core/policy/settings.hpp"

namespace penstock::router {

using DispatchId = std::uint64_t;  // one GENERATE, or one PREFILL with its EXPECT; never used again; 0 is none

struct WelcomeVerdict {
  WorkerRef worker;  // also set for a refused worker, which stays visible until on_disconnect
  Refusal refusal = Refusal::none;
  std::string detail;                          // one sentence if refused
  SnapshotNeed snapshot = SnapshotNeed::none;  // request: send SNAPSHOT_REQUEST now
};

struct FleetStats {                        // cumulative unless said otherwise
  std::uint64_t index_bytes = 0;           // now
  std::uint64_t index_blocks = 0;          // now, distinct
  std::uint64_t predicted_blocks = 0;      // now
  std::uint64_t index_blocks_evicted = 0;  // by the byte cap
  std::uint64_t workers_unsynced = 0;      // now: waiting for a snapshot
  std::uint64_t events_applied = 0;        // blocks stored or removed
  std::uint64_t gaps = 0;
  std::uint64_t snapshots = 0;  // spliced in
  std::uint64_t snapshots_discarded = 0;
  std::uint64_t stale_messages = 0;
  std::uint64_t placed_whole = 0;
  std::uint64_t placed_split = 0;
  std::uint64_t queued = 0;  // choose() said must_queue
  std::uint64_t rejected = 0;
  std::uint64_t cached_tokens = 0;           // over placements, as predicted by the index
  std::uint64_t cached_tokens_lost = 0;      // longest match minus chosen match, over placements
  std::uint64_t prompt_tokens = 0;           // over placements
  std::uint64_t cached_tokens_reported = 0;  // by workers' usage; compare with cached_tokens_promised
  std::uint64_t cached_tokens_promised = 0;  // what the index had said for the same requests
  std::uint64_t requests_in_flight = 0;      // now
};

struct Readiness {
  bool can_serve = false;            // a request without a prefix would be placed or queued
  std::vector<std::string> reasons;  // sentences: why not, and what is degraded
};

class Fleet {
 public:
  Fleet(FleetSettings settings, std::uint64_t seed);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // ---- Workers ----

  /// `expected_probe`: the router's own hashes of Hello::hash_probe_tokens under this worker's extra keys.
  WelcomeVerdict on_welcome(const protocol::Welcome& welcome, std::string address,
                            std::span<const BlockHash> expected_probe, TimePoint now);
  /// Applies live cache events at once, also while a snapshot is awaited. `request`: a gap or a new epoch was seen.
  SnapshotNeed on_cache_events(WorkerRef worker, const protocol::CacheEvents& events, TimePoint now);
  /// `request`: the snapshot could not be used (wrong epoch, part lost, gap since); ask for another.
  SnapshotNeed on_snapshot(WorkerRef worker, const protocol::Snapshot& part, TimePoint now);
  void on_load(WorkerRef worker, const protocol::Load& load, TimePoint now);
  /// Missed heartbeats; the next message of the worker (on_alive) makes it ready again.
  void on_suspect(WorkerRef worker);
  void on_alive(WorkerRef worker);
  void on_draining(WorkerRef worker);
  /// Where the worker is now, if that is learnt from elsewhere than its WELCOME: replaces all that WELCOME said.
  void on_labels(WorkerRef worker, const TopologyLabels& labels);
  /// Forgets the worker and its blocks. Dispatches to it stay open until their on_finished or on_aborted.
  void on_disconnect(WorkerRef worker);

  // ---- Requests ----

  Placement choose(const PlacementRequest& request, TimePoint now);
  /// The longest prefix of these blocks that any worker holds, in tokens; what a request will not cost, at best.
  std::uint32_t longest_match(std::span<const BlockHash> blocks, TimePoint now);
  /// Counts the request at its worker(s) at once and enters its blocks as predicted for a few seconds.
  DispatchId on_dispatched(const PlacementRequest& request, const Placement& placement, TimePoint now);
  /// `usage`: as reported with the first token, if it was; feeds the comparison of promised and found cache hits.
  void on_first_token(DispatchId dispatch, const std::optional<protocol::Usage>& usage);
  /// Output tokens of all choices together since the last call.
  void on_tokens(DispatchId dispatch, std::uint32_t tokens);
  /// The prefill worker is done with it (KV handed over, released or failed); decode goes on.
  void on_prefill_finished(DispatchId dispatch);
  void on_finished(DispatchId dispatch);
  /// The worker failed or refused it, or the client left; its predicted blocks are dropped if no token came.
  void on_aborted(DispatchId dispatch);

  // ---- Upkeep and views ----

  /// Call every 50-500 ms: expires predicted blocks, ends the join grace, cleans up in bounded steps.
  /// Returns the workers that should be sent a SNAPSHOT_REQUEST (again).
  std::vector<WorkerRef> tick(TimePoint now);

  Readiness readiness() const;
  FleetStats stats() const;
  std::vector<WorkerView> workers(TimePoint now) const;
  /// nullptr if the worker is gone.
  const WorkerInfo* find(WorkerRef worker) const;
  WorkerState state(WorkerRef worker) const;
  const FleetSettings& settings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::router
