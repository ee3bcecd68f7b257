#include "router/core/index/prefix_index.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::router {

namespace {
constexpr std::size_t prefetch_distance = 16;  // cells on their way from memory at once

BlockHash predicted_key(std::uint32_t slot, const BlockHash& block) {
  return {block.high ^ ((slot + 1ull) * 0xBF58476D1CE4E5B9ull), block.low};
}

/// Calls `visit(hash, mixed)` for each block with the cells ahead being fetched meanwhile.
template <class Tables, class Shard, class Visit>
void walk(Tables& tables, Shard shard_of, std::span<const BlockHash> blocks, Visit&& visit) {
  std::array<std::uint64_t, prefetch_distance> ahead{};
  auto fetch = [&](std::size_t i) {
    const std::uint64_t mixed = mix(blocks[i]);
    ahead[i % prefetch_distance] = mixed;
    tables[shard_of(mixed)].prefetch(mixed);
  };
  for (std::size_t i = 0; i < std::min(prefetch_distance, blocks.size()); ++i) fetch(i);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::uint64_t mixed = ahead[i % prefetch_distance];
    if (i + prefetch_distance < blocks.size()) fetch(i + prefetch_distance);
    if (!visit(i, mixed)) return;
  }
}
}  // namespace

PrefixIndex::PrefixIndex(PrefixIndexSettings settings) : settings_(settings), tables_(shards), alive_(1), found_(1) {
  for (const Table& table : tables_) table_bytes_ += table.bytes();
  rebuild_serving();
}

bool PrefixIndex::is_clean(std::uint32_t slot) const {
  if (slot >= slots_.size()) return true;
  const Slot& state = slots_[slot];
  return !state.present && std::none_of(state.dirty.begin(), state.dirty.end(), [](bool dirty) { return dirty; });
}

void PrefixIndex::add_worker(std::uint32_t slot) {
  PENSTOCK_CHECK(slot < slots_max && is_clean(slot), "slot", slot);
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  slots_[slot] = Slot{};
  slots_[slot].present = true;
  sets_.reserve_slots(static_cast<std::uint32_t>(slots_.size()));
  rebuild_serving();
}

void PrefixIndex::remove_worker(std::uint32_t slot) {
  Slot& state = slots_[slot];
  PENSTOCK_CHECK(state.present, "slot", slot);
  abandon_stage(slot);
  forget(slot, state.serving);
  forget(slot, Plane::predicted);
  state.present = false;
}

void PrefixIndex::clear(std::uint32_t slot) {
  Slot& state = slots_[slot];
  abandon_stage(slot);
  if (state.count[static_cast<std::size_t>(state.serving)] == 0) return;
  const Plane other = stage_plane(state);
  if (state.dirty[static_cast<std::size_t>(other)]) finish_sweep();  // rare: cleared while being refreshed
  forget(slot, state.serving);
  state.serving = other;
  set_serving(slot, other, true);
}

void PrefixIndex::store(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks) {
  const Slot& state = slots_[slot];
  put(member(slot, state.serving), position, blocks);
  // What was predicted has come true. The record of the prediction runs out by itself.
  if (state.count[static_cast<std::size_t>(Plane::predicted)] != 0) take(member(slot, Plane::predicted), blocks);
}

void PrefixIndex::remove(std::uint32_t slot, std::span<const BlockHash> blocks) {
  take(member(slot, slots_[slot].serving), blocks);
}

bool PrefixIndex::can_stage(std::uint32_t slot) const {
  const Slot& state = slots_[slot];
  return !state.staging && !state.dirty[static_cast<std::size_t>(stage_plane(state))];
}

void PrefixIndex::begin_stage(std::uint32_t slot) {
  PENSTOCK_CHECK(can_stage(slot), "slot", slot);
  slots_[slot].staging = true;
}

void PrefixIndex::stage_store(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks) {
  put(member(slot, stage_plane(slots_[slot])), position, blocks);
}

void PrefixIndex::stage_remove(std::uint32_t slot, std::span<const BlockHash> blocks) {
  take(member(slot, stage_plane(slots_[slot])), blocks);
}

void PrefixIndex::commit_stage(std::uint32_t slot) {
  Slot& state = slots_[slot];
  PENSTOCK_CHECK(state.staging, "slot", slot);
  const Plane fresh = stage_plane(state);
  forget(slot, state.serving);
  state.serving = fresh;
  state.staging = false;
  set_serving(slot, fresh, true);
}

void PrefixIndex::abandon_stage(std::uint32_t slot) {
  Slot& state = slots_[slot];
  if (!state.staging) return;
  state.staging = false;
  forget(slot, stage_plane(state));
}

void PrefixIndex::predict(std::uint32_t slot, std::uint32_t position, std::span<const BlockHash> blocks,
                          TimePoint until) {
  if (!slots_[slot].present) return;
  const Member confirmed = member(slot, slots_[slot].serving);
  walk(tables_, shard_of, blocks, [&](std::size_t i, std::uint64_t mixed) {
    const BlockHash& block = blocks[i];
    if (block.is_zero()) return true;
    const auto* cell = tables_[shard_of(mixed)].find(block, mixed);
    if (cell != nullptr && sets_.contains(cell->value.set, confirmed)) return true;
    while (predictions_.size() >= settings_.predicted_blocks_max) expire(predictions_.front().until);
    put(member(slot, Plane::predicted), position + static_cast<std::uint32_t>(i), blocks.subspan(i, 1));
    const BlockHash key = predicted_key(slot, block);
    if (predicted_until_.is_full()) predicted_until_.grow();
    const Until value{until.time_since_epoch().count()};
    auto [record, is_new] = predicted_until_.insert(key, mix(key), value);
    record->value.nanoseconds = std::max(record->value.nanoseconds, value.nanoseconds);
    predictions_.push_back({until, slot, block});
    return true;
  });
}

void PrefixIndex::unpredict(std::uint32_t slot, std::span<const BlockHash> blocks) {
  if (!slots_[slot].present) return;
  take(member(slot, Plane::predicted), blocks);
}

void PrefixIndex::expire(TimePoint now) {
  while (!predictions_.empty() && predictions_.front().until <= now) {
    const Prediction oldest = predictions_.front();
    predictions_.pop_front();
    const BlockHash key = predicted_key(oldest.slot, oldest.block);
    auto* record = predicted_until_.find(key, mix(key));
    // A later prediction of the same block has a record of its own further back in the queue.
    if (record == nullptr || record->value.nanoseconds > oldest.until.time_since_epoch().count()) continue;
    predicted_until_.erase(record);
    if (slots_[oldest.slot].present) take(member(oldest.slot, Plane::predicted), std::span(&oldest.block, 1));
  }
}

void PrefixIndex::match(std::span<const BlockHash> blocks, PrefixMatch& out) {
  out.blocks.assign(slots_.size(), 0);
  out.deepest = 0;
  const std::uint32_t words = sets_.words();
  std::fill(alive_.begin(), alive_.end(), ~0ull);
  WorkerSet last = 0;
  std::uint32_t depth = 0;
  auto settle = [&](std::uint64_t stopped, std::uint32_t word) {
    for (; stopped != 0; stopped &= stopped - 1) {
      const std::size_t slot = word * 64 + static_cast<std::size_t>(__builtin_ctzll(stopped));
      if (slot < out.blocks.size()) out.blocks[slot] = depth;
    }
  };
  auto narrow = [&](WorkerSet set) {
    std::fill(found_.begin(), found_.end(), 0);
    sets_.collect(set, serving_.data(), found_.data());
    std::uint64_t any = 0;
    for (std::uint32_t word = 0; word < words; ++word) {
      if (depth != 0) settle(alive_[word] & ~found_[word], word);
      any |= alive_[word] &= found_[word];
    }
    return any != 0;
  };
  walk(tables_, shard_of, blocks, [&](std::size_t i, std::uint64_t mixed) {
    auto* cell = tables_[shard_of(mixed)].find(blocks[i], mixed);
    if (cell == nullptr || cell->is_free()) return false;
    // Neighbours mostly have equal holders; nobody stops there.
    if (cell->value.set != last && !narrow(cell->value.set)) return false;
    last = cell->value.set;
    if ((cell->value.position & used_bit) == 0) cell->value.position |= used_bit;
    ++depth;
    return true;
  });
  if (depth == 0) return;
  out.deepest = depth;
  for (std::uint32_t word = 0; word < words; ++word) settle(alive_[word], word);
}

std::uint64_t PrefixIndex::bytes() const {
  return table_bytes_ + sets_.bytes() + predicted_until_.bytes() + predictions_.size() * sizeof(Prediction);
}

std::uint64_t PrefixIndex::blocks_of(std::uint32_t slot) const {
  return slot < slots_.size() ? slots_[slot].count[static_cast<std::size_t>(slots_[slot].serving)] : 0;
}

std::uint64_t PrefixIndex::predicted_blocks() const {
  std::uint64_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.present ? slot.count[static_cast<std::size_t>(Plane::predicted)] : 0;
  return sum;
}

void PrefixIndex::put(Member who, std::uint32_t position, std::span<const BlockHash> blocks) {
  walk(tables_, shard_of, blocks, [&](std::size_t i, std::uint64_t mixed) {
    if (blocks[i].is_zero()) return true;
    Table& table = tables_[shard_of(mixed)];
    if (table.is_full() && table.find(blocks[i], mixed) == nullptr && !room_in(table)) evict_one(shard_of(mixed));
    const Holders fresh{(position + static_cast<std::uint32_t>(i)) & ~used_bit, 0};
    const auto [cell, is_new] = table.insert(blocks[i], mixed, fresh);
    if (is_new) ++blocks_;
    if (sets_.contains(cell->value.set, who)) return true;
    if (!has_room_for(sets_.grows_by(cell->value.set, who))) {
      ++evicted_;  // one more holder does not fit
      return true;
    }
    sets_.add(cell->value.set, who);
    ++count(who);
    return true;
  });
}

void PrefixIndex::take(Member who, std::span<const BlockHash> blocks) {
  walk(tables_, shard_of, blocks, [&](std::size_t i, std::uint64_t mixed) {
    if (blocks[i].is_zero()) return true;
    Table& table = tables_[shard_of(mixed)];
    auto* cell = table.find(blocks[i], mixed);
    if (cell != nullptr && sets_.contains(cell->value.set, who)) withdraw(table, cell, who);
    return true;
  });
}

/// Takes one of its holders from a block. At the cap, where a set of the others may have no room, the block goes. False
/// if it is gone.
bool PrefixIndex::withdraw(Table& shard, Table::Cell* cell, Member who) {
  if (!has_room_for(sets_.grows_by(cell->value.set, who))) {
    evict(shard, cell);
    return false;
  }
  sets_.remove(cell->value.set, who);
  --count(who);
  if (cell->value.set != 0) return true;
  drop(shard, cell);
  return false;
}

void PrefixIndex::drop(Table& shard, Table::Cell* cell) {
  sets_.release(cell->value.set);
  shard.erase(cell);
  --blocks_;
}

void PrefixIndex::evict(Table& shard, Table::Cell* cell) {
  sets_.for_each(cell->value.set, [&](Member who) { --count(who); });
  drop(shard, cell);
  ++evicted_;
}

bool PrefixIndex::room_in(Table& shard) {
  if (!has_room_for(shard.bytes())) return false;
  table_bytes_ += shard.bytes();
  shard.grow();
  return true;
}

/// Second-chance clock over the shard; of a few blocks unused for a round, the deepest goes: it orphans the least.
void PrefixIndex::evict_one(std::size_t shard) {
  Table& table = tables_[shard];
  std::size_t& hand = hands_[shard];
  Table::Cell* victim = nullptr;
  std::uint32_t unused = 0;
  for (std::size_t step = 0; step < 2 * table.capacity() && unused < 6; ++step) {
    Table::Cell& cell = table.at(hand++);
    if (cell.is_free()) continue;
    if ((cell.value.position & used_bit) != 0) {
      cell.value.position &= ~used_bit;
      continue;
    }
    ++unused;
    if (victim == nullptr || cell.value.position > victim->value.position) victim = &cell;
  }
  PENSTOCK_CHECK(victim != nullptr, "size", table.size());
  evict(table, victim);
}

}  // namespace penstock::router
