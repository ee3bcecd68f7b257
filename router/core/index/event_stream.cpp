#include "router/core/index/event_stream.hpp"

#include <algorithm>

namespace penstock::router {

namespace {
std::uint64_t block_count(const protocol::CacheEvents& message) {
  std::uint64_t count = 1;
  for (const auto& event : message.events) {
    if (const auto* stored = std::get_if<protocol::BlockStored>(&event)) count += stored->blocks.size();
    if (const auto* removed = std::get_if<protocol::BlockRemoved>(&event)) count += removed->blocks.size();
  }
  return count;
}
bool clears(const protocol::CacheEvents& message) {
  return std::any_of(message.events.begin(), message.events.end(), [](const protocol::CacheEvent& event) {
    return std::holds_alternative<protocol::AllBlocksCleared>(event);
  });
}
}  // namespace

EventStream::EventStream(PrefixIndex& index, EventCounts& counts, std::uint32_t slot, std::uint64_t epoch,
                         TimePoint now)
    : index_(index),
      counts_(counts),
      slot_(slot),
      epoch_(epoch),
      asked_(true),
      unsynced_since_(now),
      asked_at_(now),
      last_message_(now) {}

SnapshotNeed EventStream::on_events(const protocol::CacheEvents& message, TimePoint now) {
  last_message_ = now;
  has_messages_ = true;
  bool lost = false;
  if (message.epoch != epoch_) {
    ++counts_.epochs;
    epoch_ = message.epoch;
    index_.clear(slot_);
    forget_kept();
    asked_ = false;
    discards_ = 0;
    lost = true;
  } else if (has_sequence_ && message.sequence <= sequence_) {
    ++counts_.repeats;
    return SnapshotNeed::none;
  } else if (has_sequence_ && message.sequence != sequence_ + 1) {
    ++counts_.gaps;
    forget_kept();  // what was kept ends before the gap
    lost = true;
  }
  sequence_ = message.sequence;
  has_sequence_ = true;
  if (lost && synced_) unsynced_since_ = now;
  if (lost) synced_ = false;
  apply(message);
  if (!synced_) keep(message);
  // A snapshot that was asked for before this gap may still be newer than it; splice() decides that.
  return lost && !synced_ && !asked_ ? ask(now) : SnapshotNeed::none;
}

void EventStream::apply(const protocol::CacheEvents& message) {
  for (const auto& event : message.events) {
    if (const auto* stored = std::get_if<protocol::BlockStored>(&event)) {
      index_.store(slot_, stored->position, stored->blocks);
      counts_.applied += stored->blocks.size();
    } else if (const auto* removed = std::get_if<protocol::BlockRemoved>(&event)) {
      index_.remove(slot_, removed->blocks);
      counts_.applied += removed->blocks.size();
    } else {
      index_.clear(slot_);
    }
  }
}

void EventStream::keep(const protocol::CacheEvents& message) {
  // After a clear everything is known again from the live events alone.
  if (clears(message)) {
    index_.abandon_stage(slot_);
    forget_kept();
    synced_ = true;
    asked_ = false;
    next_part_ = 0;
    discards_ = 0;
    return;
  }
  kept_.push_back(message);
  kept_blocks_ += block_count(message);
  while (kept_blocks_ > kept_blocks_max && !kept_.empty()) {
    kept_blocks_ -= block_count(kept_.front());
    kept_.pop_front();
  }
}

void EventStream::forget_kept() {
  kept_.clear();
  kept_blocks_ = 0;
}

SnapshotNeed EventStream::ask(TimePoint now) {
  asked_ = false;
  next_part_ = 0;
  if (!index_.can_stage(slot_)) return SnapshotNeed::none;  // tick() asks once it can be taken
  asked_ = true;
  asked_at_ = now;
  return SnapshotNeed::request;
}

SnapshotNeed EventStream::discard(TimePoint now) {
  ++counts_.snapshots_discarded;
  index_.abandon_stage(slot_);
  next_part_ = 0;
  if (synced_) return SnapshotNeed::none;
  if (discards_++ == 0) return ask(now);
  // The second in a row: asking at once could go on for ever at full speed. tick() asks when its patience is over.
  asked_ = true;
  asked_at_ = now;
  return SnapshotNeed::none;
}

SnapshotNeed EventStream::on_snapshot(const protocol::Snapshot& part, TimePoint now) {
  last_message_ = now;
  has_messages_ = true;
  if (synced_) {  // late or unasked: what we have is as good
    if (part.last) ++counts_.snapshots_discarded;
    return SnapshotNeed::none;
  }
  if (part.epoch != epoch_ || part.part != next_part_) {
    // Only the first bad part asks again; the rest of that snapshot is let pass.
    const bool restart = part.last || index_.is_staging(slot_);
    return restart ? discard(now) : SnapshotNeed::none;
  }
  if (part.part == 0) {
    if (!index_.can_stage(slot_)) return part.last ? discard(now) : SnapshotNeed::none;
    index_.begin_stage(slot_);
  }
  asked_at_ = now;
  ++next_part_;
  for (const auto& stored : part.stored) index_.stage_store(slot_, stored.position, stored.blocks);
  return part.last ? splice(part.sequence, now) : SnapshotNeed::none;
}

/// The snapshot is whole: put the live events that it does not know on top, if none of them is missing.
SnapshotNeed EventStream::splice(std::uint64_t sequence, TimePoint now) {
  const bool behind = has_sequence_ && sequence_ > sequence;
  if (behind && (kept_.empty() || kept_.front().sequence > sequence + 1)) return discard(now);
  for (const auto& message : kept_) {
    if (message.sequence > sequence) replay(message);
  }
  forget_kept();
  index_.commit_stage(slot_);
  sequence_ = behind ? sequence_ : sequence;
  has_sequence_ = true;
  synced_ = true;
  asked_ = false;
  next_part_ = 0;
  discards_ = 0;
  ++counts_.snapshots;
  return SnapshotNeed::none;
}

void EventStream::replay(const protocol::CacheEvents& message) {
  for (const auto& event : message.events) {
    if (const auto* stored = std::get_if<protocol::BlockStored>(&event)) {
      index_.stage_store(slot_, stored->position, stored->blocks);
    } else if (const auto* removed = std::get_if<protocol::BlockRemoved>(&event)) {
      index_.stage_remove(slot_, removed->blocks);
    }  // a clear is never kept
  }
}

SnapshotNeed EventStream::tick(TimePoint now, Duration patience) {
  if (synced_) return SnapshotNeed::none;
  if (asked_ && now - asked_at_ < patience) return SnapshotNeed::none;
  if (asked_) {
    index_.abandon_stage(slot_);
    next_part_ = 0;
  }
  return ask(now);
}

}  // namespace penstock::router
