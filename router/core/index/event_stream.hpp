// One worker's cache events on their way into the prefix index: detects gaps, repeats and new epochs, and splices a
// snapshot under the live events without pausing either. While a snapshot is on its way the old blocks keep serving,
// live events are applied to them, and are kept (up to kept_blocks_max) to be applied to the snapshot as well.
// Single owner, the same as the index's.
#pragma once

#include <cstdint>
#include <deque>

#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "router/core/index/prefix_index.hpp"
#include "router/core/index/snapshot_need.hpp"

namespace penstock::router {

struct EventCounts {
  std::uint64_t applied = 0;  // blocks
  std::uint64_t gaps = 0;
  std::uint64_t repeats = 0;  // messages seen before
  std::uint64_t epochs = 0;   // changes of epoch
  std::uint64_t snapshots = 0;
  std::uint64_t snapshots_discarded = 0;
};

class EventStream {
 public:
  static constexpr std::uint64_t kept_blocks_max = 1u << 17;

  /// The slot must be in the index. A stream starts unsynced; the snapshot must be asked for at once.
  EventStream(PrefixIndex& index, EventCounts& counts, std::uint32_t slot, std::uint64_t epoch, TimePoint now);

  SnapshotNeed on_events(const protocol::CacheEvents& message, TimePoint now);
  SnapshotNeed on_snapshot(const protocol::Snapshot& part, TimePoint now);
  /// Asks (again) if one is needed and none was asked for, or no part of it has come for `patience`.
  SnapshotNeed tick(TimePoint now, Duration patience);

  bool synced() const { return synced_; }
  /// How long the index may have been behind this worker's cache; zero while it is synced.
  Duration stale_for(TimePoint now) const { return synced_ ? Duration{} : now - unsynced_since_; }
  TimePoint last_message() const { return last_message_; }
  bool has_messages() const { return has_messages_; }

 private:
  void apply(const protocol::CacheEvents& message);
  void keep(const protocol::CacheEvents& message);
  void forget_kept();
  SnapshotNeed ask(TimePoint now);
  SnapshotNeed discard(TimePoint now);
  SnapshotNeed splice(std::uint64_t sequence, TimePoint now);
  void replay(const protocol::CacheEvents& message);

  PrefixIndex& index_;
  EventCounts& counts_;
  std::uint32_t slot_;
  std::uint64_t epoch_;
  std::uint64_t sequence_ = 0;  // of the last live message
  bool has_sequence_ = false;   // false: the next message may have any
  bool synced_ = false;
  bool asked_ = false;
  bool has_messages_ = false;
  TimePoint unsynced_since_;
  TimePoint asked_at_;
  TimePoint last_message_;
  std::uint32_t next_part_ = 0;
  std::uint32_t discards_ = 0;              // snapshots in a row that could not be used
  std::deque<protocol::CacheEvents> kept_;  // live messages while unsynced, in order, without gaps
  std::uint64_t kept_blocks_ = 0;
};

}  // namespace penstock::router
