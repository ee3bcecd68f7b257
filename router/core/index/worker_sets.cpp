#include "router/core/index/worker_sets.hpp"

#include <algorithm>
#include <array>

#include "common/base/check.hpp"

namespace penstock::router {
namespace {

/// Sets are hashed by the sum (XOR) of their members' numbers, so that one member more or less is one step.
std::uint64_t number_of(Member who) {
  std::uint64_t x = (who + 1ull) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

void WorkerSets::reserve_slots(std::uint32_t slots) {
  PENSTOCK_CHECK(slots <= slots_max, "slots", slots);
  std::uint32_t wanted = words_;
  while (wanted * 64 < slots) wanted *= 2;
  if (wanted == words_) return;
  for (Chunk& chunk : chunks_) {
    auto wide = std::make_unique<std::uint64_t[]>(chunk_sets * wanted * planes);
    for (std::size_t row = 0; row < chunk_sets * planes; ++row) {
      std::copy_n(chunk.bits.get() + row * words_, words_, wide.get() + row * wanted);
    }
    chunk.bits = std::move(wide);
  }
  words_ = wanted;
}

bool WorkerSets::contains(WorkerSet set, Member who) const {
  switch (set & tag_mask) {
    case 0:
      return false;
    case tag_one:
      return (set & low_mask) == who;
    case tag_two:
      return (set & low_mask) == who || ((set >> 15) & low_mask) == who;
  }
  return has_bit(set, who);
}

std::size_t WorkerSets::grows_by(WorkerSet set, Member who) const {
  const std::uint32_t tag = set & tag_mask;
  if (free_ != none || tag == 0 || tag == tag_one) return 0;
  if (tag == tag_two && contains(set, who)) return 0;
  if (tag == tag_pool && (row(set).uses == 1 || (row(set).size == 3 && contains(set, who)))) return 0;
  if (find_other(set, who) != 0) return 0;
  return chunk_bytes() + (table_is_small() ? table_.size() * sizeof(table_[0]) : 0);
}

bool WorkerSets::add(WorkerSet& set, Member who) {
  if (contains(set, who)) return false;
  switch (set & tag_mask) {
    case 0:
      set = tag_one | who;
      return true;
    case tag_one: {
      // The lower member comes first, so that equal small sets have equal codes.
      const Member other = set & low_mask;
      set = tag_two | std::min(who, other) | (std::max(who, other) << 15);
      return true;
    }
  }
  toggle(set, who);
  return true;
}

bool WorkerSets::remove(WorkerSet& set, Member who) {
  if (!contains(set, who)) return false;
  switch (set & tag_mask) {
    case tag_one:
      set = 0;
      return true;
    case tag_two: {
      const Member low = set & low_mask;
      set = tag_one | (low == who ? ((set >> 15) & low_mask) : low);
      return true;
    }
  }
  if (row(set).size > 3) {
    toggle(set, who);
    return true;
  }
  const WorkerSet small = small_without(set, who);
  release(set);
  set = small;
  return true;
}

void WorkerSets::release(WorkerSet& set) {
  if ((set & tag_mask) == tag_pool && --row(set).uses == 0) {
    leave(set);
    row(set).size = free_;
    free_ = set & ~tag_mask;
  }
  set = 0;
}

/// The pooled set that differs from `set` in `who` becomes `set`: one that other blocks have already, or this one
/// changed if it is nobody else's, or a new one.
void WorkerSets::toggle(WorkerSet& set, Member who) {
  if (const WorkerSet other = find_other(set, who); other != 0) {
    ++row(other).uses;
    release(set);
    set = other;
    return;
  }
  const std::uint64_t hash = hash_with(set, who);
  const bool is_pooled = (set & tag_mask) == tag_pool;
  if (is_pooled && row(set).uses == 1) {
    leave(set);
  } else {
    const WorkerSet fresh = allocate();
    if (is_pooled) {
      std::copy_n(bits(set), stride(), bits(fresh));
    } else {
      for_each(set, [&](Member old) { bits(fresh)[word_of(old)] |= bit_of(old); });
    }
    row(fresh) = {hash, 1, is_pooled ? row(set).size : 2};
    release(set);
    set = fresh;
  }
  const bool leaves = has_bit(set, who);
  bits(set)[word_of(who)] ^= bit_of(who);
  row(set).size += leaves ? -1u : 1u;
  row(set).hash = hash;
  enter(set);
}

WorkerSet WorkerSets::small_without(WorkerSet set, Member who) const {
  std::array<Member, 2> left{};
  std::size_t count = 0;
  for_each(set, [&](Member member) {
    if (member != who) left.at(count++) = member;
  });
  return tag_two | std::min(left[0], left[1]) | (std::max(left[0], left[1]) << 15);
}

// ---- The pool ----

WorkerSet WorkerSets::allocate() {
  if (free_ == none) {
    const auto first = static_cast<std::uint32_t>(chunks_.size() * chunk_sets);
    const bool rehash = table_is_small();
    chunks_.push_back({std::make_unique<Row[]>(chunk_sets), std::make_unique<std::uint64_t[]>(chunk_sets * stride())});
    for (std::uint32_t i = chunk_sets; i-- > 0; free_ = first + i) row_at(first + i).size = free_;
    if (rehash) {
      table_.assign(table_.size() * 2, 0);
      shared_sets_ = 0;
      for (std::uint32_t index = 0; index < first; ++index) {
        if (row_at(index).uses != 0) enter(tag_pool | index);
      }
    }
  }
  const WorkerSet set = tag_pool | free_;
  free_ = row(set).size;
  std::fill_n(bits(set), stride(), 0);
  return set;
}

std::uint64_t WorkerSets::hash_with(WorkerSet set, Member who) const {
  std::uint64_t hash = number_of(who);
  if ((set & tag_mask) == tag_pool) return hash ^ row(set).hash;
  for_each(set, [&](Member member) { hash ^= number_of(member); });
  return hash;
}

bool WorkerSets::differ_in(WorkerSet pooled, WorkerSet set, Member who) const {
  if ((set & tag_mask) != tag_pool) {
    bool has_all = row(pooled).size == 3 && has_bit(pooled, who);
    for_each(set, [&](Member member) { has_all = has_all && has_bit(pooled, member); });
    return has_all;
  }
  const std::uint64_t *left = bits(pooled), *right = bits(set);
  std::uint64_t difference = left[word_of(who)] ^ right[word_of(who)] ^ bit_of(who);
  for (std::size_t i = 0; i < stride(); ++i) difference |= i == word_of(who) ? 0 : left[i] ^ right[i];
  return difference == 0;
}

WorkerSet WorkerSets::find_other(WorkerSet set, Member who) const {
  const std::uint64_t hash = hash_with(set, who);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t at = hash & mask; table_[at] != 0; at = (at + 1) & mask) {
    const WorkerSet other = tag_pool | (table_[at] - 1);
    if (row(other).hash == hash && differ_in(other, set, who)) return other;
  }
  return 0;
}

void WorkerSets::enter(WorkerSet set) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = row(set).hash & mask;
  while (table_[at] != 0) at = (at + 1) & mask;
  table_[at] = (set & ~tag_mask) + 1;
  ++shared_sets_;
}

void WorkerSets::leave(WorkerSet set) {
  const std::size_t mask = table_.size() - 1;
  std::size_t hole = row(set).hash & mask;
  while (table_[hole] != (set & ~tag_mask) + 1) hole = (hole + 1) & mask;
  for (std::size_t at = (hole + 1) & mask; table_[at] != 0; at = (at + 1) & mask) {
    const std::size_t home = row_at(table_[at] - 1).hash & mask;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = 0;
  --shared_sets_;
}

// ---- Reading ----

bool WorkerSets::intersects(WorkerSet set, const std::uint64_t* mask) const {
  const auto is_in = [&](Member who) { return (mask[word_of(who)] & bit_of(who)) != 0; };
  switch (set & tag_mask) {
    case 0:
      return false;
    case tag_one:
      return is_in(set & low_mask);
    case tag_two:
      return is_in(set & low_mask) || is_in((set >> 15) & low_mask);
  }
  const std::uint64_t* words = bits(set);
  std::uint64_t common = 0;
  for (std::size_t i = 0; i < stride(); ++i) common |= words[i] & mask[i];
  return common != 0;
}

void WorkerSets::collect(WorkerSet set, const std::uint64_t* serving, std::uint64_t* slots) const {
  const std::uint32_t tag = set & tag_mask;
  if (tag == tag_pool) {
    const std::uint64_t* words = bits(set);
    for (std::uint32_t word = 0; word < words_; ++word) {
      std::uint64_t found = 0;
      for (std::uint32_t plane = 0; plane < planes; ++plane) {
        found |= words[plane * words_ + word] & serving[plane * words_ + word];
      }
      slots[word] |= found;
    }
    return;
  }
  auto take = [&](Member who) {
    if ((serving[word_of(who)] & bit_of(who)) != 0) slots[(who / planes) / 64] |= bit_of(who);
  };
  if (tag == 0) return;
  take(set & low_mask);
  if (tag == tag_two) take((set >> 15) & low_mask);
}

}  // namespace penstock::router
