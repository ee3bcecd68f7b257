// The set of holders of one block, in 32 bits: none, one or two members inline, or the number of a bitset in a pool.
// A member is a worker slot in one of three planes: confirmed blocks live in plane a or b (one serves while a snapshot
// is staged in the other), predicted ones in their own. Single owner; the pool grows in chunks.
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

using WorkerSet = std::uint32_t;  // 0 is the empty set

class WorkerSets {
 public:
  /// Makes room for slots below `slots`.
  void reserve_slots(std::uint32_t slots);
  std::uint32_t words() const { return words_; }  // of 64 slots, a plane
  std::size_t bytes() const { return chunks_.size() * chunk_sets * stride() * 8 + free_.capacity() * 4; }
  /// The bytes that add() would take from the system; mostly none.
  std::size_t grows_by(WorkerSet set, Member who) const {
    if ((set & tag_mask) != tag_two || !free_.empty() || contains(set, who)) return 0;
    return chunk_sets * (stride() * 8 + 4);
  }

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

  std::size_t stride() const { return std::size_t{words_} * planes; }
  std::uint64_t* pool(WorkerSet set) const;
  std::uint32_t allocate();
  void shrink(WorkerSet& set);

  std::uint32_t words_ = 1;
  std::vector<std::unique_ptr<std::uint64_t[]>> chunks_;
  std::vector<std::uint32_t> free_;
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
  const std::uint64_t* bits = pool(set);
  for (std::uint32_t plane = 0; plane < planes; ++plane) {
    for (std::uint32_t word = 0; word < words_; ++word) {
      for (std::uint64_t rest = bits[plane * words_ + word]; rest != 0; rest &= rest - 1) {
        visit((word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(rest))) * planes + plane);
      }
    }
  }
}

}  // namespace penstock::router
