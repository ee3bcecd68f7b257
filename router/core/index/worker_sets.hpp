// The set of holders of one block, in 32 bits: none, one or two members inline, or the number of a shared bitset in a
// pool. Equal sets have equal codes, so neighbours of a chain, which mostly have equal holders, are told by comparing
// two numbers, and a walk along a prompt reads few bitsets. Sets in the pool are counted and found by a hash of their
// members. A member is a worker slot in one of three planes: confirmed blocks live in plane a or b (one serves while a
// snapshot is staged in the other), predicted ones in their own. Single owner; the pool grows in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::router {

enum class Plane : std::uint8_t { a, b, predicted };
inline constexpr std::uint32_t planes = 3;

using Member = std::uint32_t;  // slot * planes + plane, below 2^15
inline Member member(std::uint32_t slot, Plane plane) {
  return slot * planes + static_cast<std::uint32_t>(plane);
}
inline constexpr std::uint32_t slots_max = (1u << 15) / planes;

/// 0 is the empty set. Each code that add() or remove() left in its place counts as one use of its set: it may be
/// moved, but a copy must not be changed or released.
using WorkerSet = std::uint32_t;

class WorkerSets {
 public:
  /// Makes room for slots below `slots`.
  void reserve_slots(std::uint32_t slots);
  std::uint32_t words() const { return words_; }  // of 64 slots, a plane
  std::size_t bytes() const { return chunks_.size() * chunk_bytes() + table_.size() * sizeof(table_[0]); }
  /// The bytes that add() or remove() of `who`, whichever changes the set, would take from the system; mostly none.
  std::size_t grows_by(WorkerSet set, Member who) const;
  /// Sets in the pool that are in use.
  std::size_t shared_sets() const { return shared_sets_; }

  bool contains(WorkerSet set, Member who) const;
  /// True if the set changed.
  bool add(WorkerSet& set, Member who);
  bool remove(WorkerSet& set, Member who);
  void release(WorkerSet& set);

  /// ORs the slots of the set's members into `slots` (words() long), each only if its plane serves for its slot.
  void collect(WorkerSet set, const std::uint64_t* serving, std::uint64_t* slots) const;
  /// Whether a member is in `mask` (planes x words() words, as a bitset of the pool).
  bool intersects(WorkerSet set, const std::uint64_t* mask) const;
  std::size_t word_of(Member who) const { return (who % planes) * words_ + (who / planes) / 64; }
  static std::uint64_t bit_of(Member who) { return 1ull << ((who / planes) % 64); }
  template <class Visit>
  void for_each(WorkerSet set, Visit&& visit) const;

 private:
  static constexpr std::size_t chunk_sets = 512;
  static constexpr std::uint32_t tag_one = 1u << 30, tag_two = 2u << 30, tag_pool = 3u << 30, tag_mask = 3u << 30;
  static constexpr std::uint32_t low_mask = (1u << 15) - 1;
  static constexpr std::uint32_t none = ~0u;

  struct Row {               // of the pool, beside its bits (planes x words_ words)
    std::uint64_t hash = 0;  // of the members, in any order
    std::uint32_t uses = 0;  // codes of this set; 0: the row is free
    std::uint32_t size = 0;  // members; of a free row, the next free one
  };
  struct Chunk {
    std::unique_ptr<Row[]> rows;
    std::unique_ptr<std::uint64_t[]> bits;
  };

  std::size_t stride() const { return std::size_t{words_} * planes; }
  std::size_t chunk_bytes() const { return chunk_sets * (sizeof(Row) + stride() * 8); }
  bool table_is_small() const { return (chunks_.size() + 1) * chunk_sets * 2 > table_.size(); }
  Row& row_at(std::uint32_t index) const { return chunks_[index / chunk_sets].rows[index % chunk_sets]; }
  Row& row(WorkerSet set) const { return row_at(set & ~tag_mask); }
  std::uint64_t* bits(WorkerSet set) const {
    const std::uint32_t index = set & ~tag_mask;
    return chunks_[index / chunk_sets].bits.get() + (index % chunk_sets) * stride();
  }
  bool has_bit(WorkerSet set, Member who) const { return (bits(set)[word_of(who)] & bit_of(who)) != 0; }

  std::uint64_t hash_with(WorkerSet set, Member who) const;
  bool differ_in(WorkerSet pooled, WorkerSet set, Member who) const;
  WorkerSet find_other(WorkerSet set, Member who) const;
  WorkerSet allocate();
  void toggle(WorkerSet& set, Member who);
  WorkerSet small_without(WorkerSet set, Member who) const;
  void enter(WorkerSet set);
  void leave(WorkerSet set);

  std::uint32_t words_ = 1;
  std::vector<Chunk> chunks_;
  std::uint32_t free_ = none;  // first free row
  // Pooled sets by hash, linear probing, at most half full: row + 1, 0 is a free cell.
  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(2 * chunk_sets);
  std::size_t shared_sets_ = 0;
};

template <class Visit>
void WorkerSets::for_each(WorkerSet set, Visit&& visit) const {
  switch (set & tag_mask) {
    case 0:
      return;
    case tag_one:
      visit(set & low_mask);
      return;
    case tag_two:
      visit(set & low_mask);
      visit((set >> 15) & low_mask);
      return;
  }
  const std::uint64_t* words = bits(set);
  for (std::uint32_t plane = 0; plane < planes; ++plane) {
    for (std::uint32_t word = 0; word < words_; ++word) {
      for (std::uint64_t rest = words[plane * words_ + word]; rest != 0; rest &= rest - 1) {
        const auto slot = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(rest));
        visit(member(slot, static_cast<Plane>(plane)));
      }
    }
  }
}

}  // namespace penstock::router
