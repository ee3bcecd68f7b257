// Forgetting a whole plane of a worker: at once by taking it out of service, then out of memory in bounded steps.
#include <algorithm>

#include "common/base/check.hpp"
#include "router/core/index/prefix_index.hpp"

namespace penstock::router {

void PrefixIndex::forget(std::uint32_t slot, Plane plane) {
  Slot& state = slots_[slot];
  set_serving(slot, plane, false);
  const auto at = static_cast<std::size_t>(plane);
  if (state.count[at] == 0 || state.dirty[at]) return;
  state.dirty[at] = true;
  ++dirty_;
}

void PrefixIndex::set_serving(std::uint32_t slot, Plane plane, bool on) {
  std::uint64_t& word = serving_[static_cast<std::size_t>(plane) * sets_.words() + slot / 64];
  const std::uint64_t bit = 1ull << (slot % 64);
  word = on ? word | bit : word & ~bit;
}

void PrefixIndex::rebuild_serving() {
  serving_.assign(std::size_t{sets_.words()} * planes, 0);
  alive_.resize(sets_.words());
  found_.resize(sets_.words());
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot].present) continue;
    set_serving(slot, slots_[slot].serving, true);
    set_serving(slot, Plane::predicted, true);
  }
  mask_sweeping();  // its rows may have become longer
}

bool PrefixIndex::sweep(std::size_t cells) {
  if (dirty_ == 0) return false;
  if (sweep_at_ == shards) {
    sweeping_.clear();
    for (std::uint32_t who = 0; who < slots_.size() * planes; ++who) {
      if (slots_[who / planes].dirty[who % planes]) sweeping_.push_back(who);
    }
    mask_sweeping();
    sweep_at_ = 0;
  }
  std::size_t done = 0;
  while (sweep_at_ < shards && done < cells) {
    done += tables_[sweep_at_].capacity();
    sweep_shard(tables_[sweep_at_++]);
  }
  if (sweep_at_ < shards) return true;
  for (Member who : sweeping_) {
    PENSTOCK_CHECK(count(who) == 0, "member", who);
    slots_[who / planes].dirty[who % planes] = false;
    --dirty_;
  }
  return dirty_ != 0;
}

void PrefixIndex::mask_sweeping() {
  sweep_mask_.assign(std::size_t{sets_.words()} * planes, 0);
  for (Member who : sweeping_) sweep_mask_[sets_.word_of(who)] |= WorkerSets::bit_of(who);
}

void PrefixIndex::sweep_shard(Table& shard) {
  std::vector<Member> leaving;
  for (std::size_t at = 0; at < shard.capacity();) {
    Table::Cell& cell = shard.at(at);
    if (cell.is_free() || !sets_.intersects(cell.value.set, sweep_mask_.data())) {
      ++at;
      continue;
    }
    leaving.clear();
    sets_.for_each(cell.value.set, [&](Member who) {
      if ((sweep_mask_[sets_.word_of(who)] & WorkerSets::bit_of(who)) != 0) leaving.push_back(who);
    });
    // Once the block is gone, another cell may have moved here: look again. Otherwise nothing is left to remove.
    for (Member who : leaving) {
      if (!withdraw(shard, &cell, who)) break;
    }
  }
}

void PrefixIndex::finish_sweep() {
  while (sweep(std::size_t{1} << 20)) {
  }
}

}  // namespace penstock::router
