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
}

bool PrefixIndex::sweep(std::size_t cells) {
  if (dirty_ == 0) return false;
  if (sweep_at_ == shards) {
    sweeping_.assign(slots_.size() * planes, false);
    for (std::size_t i = 0; i < sweeping_.size(); ++i) sweeping_[i] = slots_[i / planes].dirty[i % planes];
    sweep_at_ = 0;
  }
  std::size_t done = 0;
  while (sweep_at_ < shards && done < cells) {
    done += tables_[sweep_at_].capacity();
    sweep_shard(tables_[sweep_at_++]);
  }
  if (sweep_at_ < shards) return true;
  for (std::size_t i = 0; i < sweeping_.size(); ++i) {
    if (!sweeping_[i]) continue;
    PENSTOCK_CHECK(slots_[i / planes].count[i % planes] == 0, "member", i);
    slots_[i / planes].dirty[i % planes] = false;
    --dirty_;
  }
  return dirty_ != 0;
}

void PrefixIndex::sweep_shard(Table& shard) {
  std::vector<Member> leaving;
  for (std::size_t at = 0; at < shard.capacity();) {
    Table::Cell& cell = shard.at(at);
    leaving.clear();
    if (!cell.is_free()) {
      sets_.for_each(cell.value.set, [&](Member who) {
        if (who < sweeping_.size() && sweeping_[who]) leaving.push_back(who);
      });
    }
    for (Member who : leaving) {
      sets_.remove(cell.value.set, who);
      --count(who);
    }
    if (!leaving.empty() && cell.value.set == 0) {
      drop(shard, &cell);  // another cell may have moved here: look again
    } else {
      ++at;
    }
  }
}

void PrefixIndex::finish_sweep() {
  while (sweep(std::size_t{1} << 20)) {
  }
}

}  // namespace penstock::router
