// Which worker holds which KV blocks, for all workers of one model. A block's 128-bit chain hash includes its parent,
// so one flat table is a prefix tree: the longest match is a walk along the prompt's hashes. It is exact also where a
// worker lacks blocks in the middle (the match ends there), and stores arriving without their parent are harmless.
//
// Single owner. Bytes are bounded: at the cap the least recently matched blocks go, deepest first. Whole workers are
// forgotten in constant time and swept out later in bounded steps (sweep()), so nothing here pauses for long.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "common/base/id.hpp"
#include "common/time/clock.hpp"
#include "router/core/index/block_table.hpp"
#include "router/core/index/worker_sets.hpp"

namespace penstock::router {

struct PrefixIndexSettings {
  std::uint64_t bytes_max = 256ull << 20;
  std::uint32_t predicted_blocks_max = 1u << 18;
};

/// How many leading blocks of the prompt each worker slot holds; reused between calls.
struct PrefixMatch {
  std::vector<std::uint32_t> blocks;  // by slot; as long as the index has slots
  std::uint32_t deepest = 0;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(PrefixIndexSettings settings = {});

  // ---- Workers: slots are the caller's, dense, below slots_max ----
  /// False while blocks of the slot's previous worker are not swept out yet.
  bool is_clean(std::uint32_t slot) const;
  void add_worker(std::uint32_t slot);
  /// Constant time; its blocks match no more.
  void remove_worker(std::uint32_t slot);
  /// Forgets all blocks of a worker that stays (cache cleared, new epoch).
  void clear(std::uint32_t slot);

  // ---- Confirmed blocks; storing twice and removing what is absent are harmless ----
  void store(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks);
  void remove(std::uint32_t slot, std::span<const BlockHash> blocks);

  // ---- Snapshot: built beside the serving blocks, then swapped in ----
  /// False while the remains of an earlier snapshot are not swept out yet; try again later.
  bool can_stage(std::uint32_t slot) const;
  void begin_stage(std::uint32_t slot);
  bool is_staging(std::uint32_t slot) const { return slots_[slot].staging; }
  void stage_store(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks);
  void stage_remove(std::uint32_t slot, std::span<const BlockHash> blocks);
  void commit_stage(std::uint32_t slot);
  void abandon_stage(std::uint32_t slot);

  // ---- Predicted blocks: count like confirmed ones until `until` or until the worker says so itself ----
  void predict(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks, TimePoint until);
  /// Takes back what predict() entered.
  void unpredict(std::uint32_t slot, std::span<const BlockHash> blocks);
  void expire(TimePoint now);

  /// Marks the blocks it walks over as used, hence not const.
  void match(std::span<const BlockHash> blocks, PrefixMatch& out);

  /// Cleans up at least one and at most about `cells` table cells; false if there is nothing to do.
  bool sweep(std::size_t cells);

  std::uint64_t bytes() const;
  std::uint64_t blocks() const { return blocks_; }  // distinct
  std::uint64_t blocks_of(std::uint32_t slot) const;
  std::uint64_t predicted_blocks() const;
  std::uint64_t evicted() const { return evicted_; }

 private:
  struct Holders {
    std::uint32_t position = 0;  // absolute, in blocks; the top bit says "used since the clock hand passed"
    WorkerSet set = 0;
  };
  struct Until {
    std::int64_t nanoseconds = 0;
  };
  using Table = BlockTable<Holders>;
  struct Slot {
    bool present = false;
    bool staging = false;
    Plane serving = Plane::a;
    std::array<std::uint64_t, planes> count{};  // blocks a plane
    std::array<bool, planes> dirty{};           // forgotten, not swept yet
  };
  struct Prediction {
    TimePoint until;
    std::uint32_t slot;
    BlockHash block;
  };
  static constexpr std::size_t shards = 256;
  static constexpr std::uint32_t used_bit = 1u << 31;
  static std::size_t shard_of(std::uint64_t mixed) { return mixed >> 56; }

  Plane stage_plane(const Slot& slot) const { return slot.serving == Plane::a ? Plane::b : Plane::a; }
  void put(Member who, std::uint32_t position, std::span<const BlockHash> blocks);
  void take(Member who, std::span<const BlockHash> blocks);
  bool withdraw(Table& shard, Table::Cell* cell, Member who);
  bool has_room_for(std::size_t more) const { return more == 0 || bytes() + more <= settings_.bytes_max; }
  bool room_in(Table& shard);
  void evict(Table& shard, Table::Cell* cell);
  void evict_one(std::size_t shard);
  void drop(Table& shard, Table::Cell* cell);
  void forget(std::uint32_t slot, Plane plane);
  void set_serving(std::uint32_t slot, Plane plane, bool on);
  void rebuild_serving();
  void mask_sweeping();
  void sweep_shard(Table& shard);
  void finish_sweep();
  std::uint64_t& count(Member who) { return slots_[who / planes].count[who % planes]; }

  PrefixIndexSettings settings_;
  std::vector<Table> tables_;
  std::array<std::size_t, shards> hands_{};
  std::size_t table_bytes_ = 0;
  WorkerSets sets_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> serving_;  // planes x words: whose confirmed plane serves
  std::vector<std::uint64_t> alive_, found_;
  BlockTable<Until> predicted_until_;
  std::deque<Prediction> predictions_;
  std::vector<Member> sweeping_;           // what this pass removes ...
  std::vector<std::uint64_t> sweep_mask_;  // ... and the same as a bitset
  std::size_t sweep_at_ = shards;
  std::uint32_t dirty_ = 0;
  std::uint64_t blocks_ = 0, evicted_ = 0;
};

}  // namespace penstock::router
