#include "router/core/index/worker_sets.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::router {

void WorkerSets::reserve_slots(std::uint32_t slots) {
  PENSTOCK_CHECK(slots <= slots_max, "slots", slots);
  std::uint32_t wanted = words_;
  while (wanted * 64 < slots) wanted *= 2;
  if (wanted == words_) return;
  for (auto& chunk : chunks_) {
    auto wide = std::make_unique<std::uint64_t[]>(chunk_sets * wanted * planes);
    for (std::size_t row = 0; row < chunk_sets * planes; ++row) {
      std::copy_n(chunk.get() + row * words_, words_, wide.get() + row * wanted);
    }
    chunk = std::move(wide);
  }
  words_ = wanted;
}

std::uint64_t* WorkerSets::pool(WorkerSet set) const {
  const std::uint32_t index = set & ~tag_mask;
  return chunks_[index / chunk_sets].get() + (index % chunk_sets) * stride();
}

std::uint32_t WorkerSets::allocate() {
  if (free_.empty()) {
    const auto first = static_cast<std::uint32_t>(chunks_.size() * chunk_sets);
    chunks_.push_back(std::make_unique<std::uint64_t[]>(chunk_sets * stride()));
    free_.reserve(chunks_.size() * chunk_sets);
    for (std::uint32_t i = chunk_sets; i-- > 0;) free_.push_back(first + i);
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  std::fill_n(pool(index), stride(), 0);
  return index;
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
  return (pool(set)[word_of(who)] & bit_of(who)) != 0;
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
    case tag_two: {
      const std::uint32_t index = allocate();
      std::uint64_t* bits = pool(index);
      for (Member old : {set & low_mask, (set >> 15) & low_mask}) bits[word_of(old)] |= bit_of(old);
      set = tag_pool | index;
      break;
    }
  }
  pool(set)[word_of(who)] |= bit_of(who);
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
  pool(set)[word_of(who)] &= ~bit_of(who);
  shrink(set);
  return true;
}

void WorkerSets::shrink(WorkerSet& set) {
  const std::uint64_t* bits = pool(set);
  int count = 0;
  for (std::size_t i = 0; i < stride(); ++i) count += __builtin_popcountll(bits[i]);
  if (count > 2) return;
  WorkerSet small = 0;
  for_each(set, [&](Member who) { add(small, who); });
  release(set);
  set = small;
}

void WorkerSets::release(WorkerSet& set) {
  if ((set & tag_mask) == tag_pool) free_.push_back(set & ~tag_mask);
  set = 0;
}

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
  const std::uint64_t* bits = pool(set);
  std::uint64_t common = 0;
  for (std::size_t i = 0; i < stride(); ++i) common |= bits[i] & mask[i];
  return common != 0;
}

void WorkerSets::collect(WorkerSet set, const std::uint64_t* serving, std::uint64_t* slots) const {
  const std::uint32_t tag = set & tag_mask;
  if (tag == tag_pool) {
    const std::uint64_t* bits = pool(set);
    for (std::uint32_t word = 0; word < words_; ++word) {
      std::uint64_t found = 0;
      for (std::uint32_t plane = 0; plane < planes; ++plane) {
        found |= bits[plane * words_ + word] & serving[plane * words_ + word];
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
