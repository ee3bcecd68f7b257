#include "worker/core/kv/kv_cache.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace penstock::worker {

KvCache::KvCache(std::uint32_t blocks, std::uint32_t block_tokens)
    : block_tokens_(block_tokens), entries_(blocks), tokens_(std::size_t{blocks} * block_tokens) {
  PENSTOCK_CHECK(block_tokens > 0);
  free_.reserve(blocks);
  for (std::uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);
  index_.reserve(blocks);
}

std::optional<BlockIndex> KvCache::allocate() {
  if (free_.empty()) {
    if (oldest_ == none) return std::nullopt;
    const BlockIndex victim = oldest_;
    uncache(victim);
    ++evictions_;
  }
  const BlockIndex block = free_.back();
  free_.pop_back();
  Entry& entry = entries_[block];
  ++entry.generation;
  entry.references = 1;
  return block;
}

void KvCache::hold(BlockIndex block, std::uint32_t Entry::* counter) {
  Entry& entry = entries_[block];
  if (!is_held(entry)) {
    PENSTOCK_CHECK(entry.cached, "block", block, "is free");
    --idle_;
  }
  ++(entry.*counter);
  update(block);
}

void KvCache::drop(BlockIndex block, std::uint32_t Entry::* counter) {
  Entry& entry = entries_[block];
  PENSTOCK_CHECK(entry.*counter > 0, "block", block);
  --(entry.*counter);
  if (is_held(entry)) return;
  if (entry.cached) {
    ++idle_;
    update(block);
  } else {
    free_.push_back(block);
  }
}

void KvCache::retain(BlockIndex block) {
  hold(block, &Entry::references);
}
void KvCache::release(BlockIndex block) {
  drop(block, &Entry::references);
}

void KvCache::pin(BlockIndex block) {
  pinned_ += entries_[block].pins == 0 ? 1 : 0;
  hold(block, &Entry::pins);
}

void KvCache::unpin(BlockIndex block) {
  drop(block, &Entry::pins);
  pinned_ -= entries_[block].pins == 0 ? 1 : 0;
}

void KvCache::update(BlockIndex block) {
  Entry& entry = entries_[block];
  const bool evictable = entry.cached && !is_held(entry) && entry.children == 0;
  if (entry.listed && !evictable) unlist(block);
  if (!entry.listed && evictable) list(block);
}

void KvCache::list(BlockIndex block) {
  Entry& entry = entries_[block];
  entry.listed = true;
  entry.older = newest_;
  entry.newer = none;
  (newest_ == none ? oldest_ : entries_[newest_].newer) = block;
  newest_ = block;
}

void KvCache::unlist(BlockIndex block) {
  Entry& entry = entries_[block];
  entry.listed = false;
  (entry.older == none ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == none ? newest_ : entries_[entry.newer].older) = entry.older;
  entry.older = entry.newer = none;
}

std::vector<BlockIndex> KvCache::match(BlockHash root, std::span<const BlockHash> hashes,
                                       std::span<const TokenId> tokens) {
  PENSTOCK_CHECK(hashes.size() * block_tokens_ <= tokens.size(), "hashes", hashes.size(), "tokens", tokens.size());
  std::vector<BlockIndex> found;
  BlockHash parent_hash = root;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto place = index_.find(hashes[i]);
    if (place == index_.end()) break;
    const Entry& entry = entries_[place->second];
    const std::span<const TokenId> wanted = tokens.subspan(i * block_tokens_, block_tokens_);
    const bool same = entry.parent_hash == parent_hash && entry.parent == (found.empty() ? none : found.back()) &&
                      std::ranges::equal(tokens_of(place->second), wanted);
    if (!same) break;
    found.push_back(place->second);
    parent_hash = hashes[i];
  }
  for (const BlockIndex block : found) retain(block);
  return found;
}

std::size_t KvCache::count_cached(std::span<const BlockHash> hashes) const {
  const auto end =
      std::partition_point(hashes.begin(), hashes.end(), [&](const BlockHash& hash) { return index_.contains(hash); });
  return static_cast<std::size_t>(end - hashes.begin());
}

std::optional<BlockIndex> KvCache::commit(BlockIndex block, const Place& place, std::span<const TokenId> tokens) {
  PENSTOCK_CHECK(tokens.size() == block_tokens_ && is_held(entries_[block]), "block", block);
  if (entries_[block].cached) return block;
  if (place.parent && !entries_[*place.parent].cached) return std::nullopt;
  const BlockIndex parent = place.parent.value_or(none);
  if (const auto known = index_.find(place.hash); known != index_.end()) {
    const Entry& other = entries_[known->second];
    const bool same = other.parent == parent && other.parent_hash == place.parent_hash &&
                      std::ranges::equal(tokens_of(known->second), tokens);
    if (!same) return std::nullopt;  // a collision: the first comer keeps the name
    const BlockIndex copy = known->second;
    retain(copy);
    release(block);
    return copy;
  }
  Entry& entry = entries_[block];
  entry.cached = true;
  entry.hash = place.hash;
  entry.parent_hash = place.parent_hash;
  entry.parent = parent;
  entry.position = place.position;
  entry.children = 0;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{block} * block_tokens_));
  index_.emplace(place.hash, block);
  if (parent != none) {
    ++entries_[parent].children;
    update(parent);
  }
  note_stored(block);
  return block;
}

void KvCache::note_stored(BlockIndex block) {
  const Entry& entry = entries_[block];
  if (!events_.empty()) {
    auto* last = std::get_if<protocol::BlockStored>(&events_.back());
    if (last && last->blocks.back() == entry.parent_hash && last->position + last->blocks.size() == entry.position) {
      last->blocks.push_back(entry.hash);
      return;
    }
  }
  const BlockHash parent = entry.position == 0 ? BlockHash{} : entry.parent_hash;
  events_.emplace_back(protocol::BlockStored{entry.position, parent, {entry.hash}});
}

void KvCache::uncache(BlockIndex block) {
  Entry& entry = entries_[block];
  PENSTOCK_CHECK(entry.cached && entry.children == 0, "block", block);
  entry.cached = false;
  update(block);
  index_.erase(entry.hash);
  if (entry.parent != none) {
    --entries_[entry.parent].children;
    update(entry.parent);
  }
  entry.parent = none;
  if (!is_held(entry)) {
    --idle_;
    free_.push_back(block);
  }
  auto* last = events_.empty() ? nullptr : std::get_if<protocol::BlockRemoved>(&events_.back());
  if (last) {
    last->blocks.push_back(entry.hash);
  } else {
    events_.emplace_back(protocol::BlockRemoved{{entry.hash}});
  }
}

void KvCache::forget(BlockIndex block) {
  if (!entries_[block].cached) return;
  // Rare (a stop string or an abort), so children are searched for instead of being kept in lists.
  for (BlockIndex child = 0; entries_[block].children > 0 && child < entries_.size(); ++child) {
    if (entries_[child].cached && entries_[child].parent == block) forget(child);
  }
  uncache(block);
}

void KvCache::clear() {
  for (BlockIndex block = 0; block < entries_.size(); ++block) {
    Entry& entry = entries_[block];
    if (!entry.cached) continue;
    if (entry.listed) unlist(block);
    entry.cached = false;
    entry.children = 0;
    entry.parent = none;
    if (!is_held(entry)) free_.push_back(block);
  }
  idle_ = 0;
  index_.clear();
  events_.clear();
  events_.emplace_back(protocol::AllBlocksCleared{});
}

std::vector<protocol::CacheEvent> KvCache::take_events() {
  return std::exchange(events_, {});
}

std::vector<protocol::BlockStored> KvCache::snapshot(std::uint32_t run_blocks_max) const {
  std::vector<std::vector<BlockIndex>> children(entries_.size());
  std::vector<BlockIndex> heads;
  for (BlockIndex block = 0; block < entries_.size(); ++block) {
    if (!entries_[block].cached) continue;
    (entries_[block].parent == none ? heads : children[entries_[block].parent]).push_back(block);
  }
  std::vector<protocol::BlockStored> out;
  while (!heads.empty()) {
    BlockIndex block = heads.back();
    heads.pop_back();
    const Entry& head = entries_[block];
    out.push_back({head.position, head.position == 0 ? BlockHash{} : head.parent_hash, {head.hash}});
    while (!children[block].empty()) {
      heads.insert(heads.end(), children[block].begin() + 1, children[block].end());
      block = children[block].front();
      if (out.back().blocks.size() == run_blocks_max) {
        heads.push_back(block);
        break;
      }
      out.back().blocks.push_back(entries_[block].hash);
    }
  }
  return out;
}

std::string KvCache::find_contradiction() const {
  std::vector<std::uint32_t> children(entries_.size());
  std::vector<bool> free(entries_.size());
  for (const BlockIndex block : free_) {
    if (free[block]) return "block " + std::to_string(block) + " is free twice";
    free[block] = true;
  }
  std::uint32_t idle = 0, pinned = 0, cached = 0, evictable = 0;
  for (BlockIndex block = 0; block < entries_.size(); ++block) {
    const Entry& entry = entries_[block];
    const std::string name = "block " + std::to_string(block);
    if (free[block] == (is_held(entry) || entry.cached)) return name + " is free and used, or neither";
    idle += entry.cached && !is_held(entry);
    pinned += entry.pins > 0;
    cached += entry.cached;
    evictable += entry.listed;
    if (!entry.cached) continue;
    if (entry.parent == none) continue;
    ++children[entry.parent];
    if (!entries_[entry.parent].cached) return name + " is cached and its parent is not";
  }
  for (BlockIndex block = 0; block < entries_.size(); ++block) {
    const Entry& entry = entries_[block];
    if (entry.cached && entry.children != children[block]) return "children of block " + std::to_string(block);
    const bool should = entry.cached && !is_held(entry) && entry.children == 0;
    if (entry.listed != should) return "list of evictable blocks, block " + std::to_string(block);
  }
  if (idle != idle_ || pinned != pinned_ || cached != index_.size()) return "counters of idle, pinned or cached blocks";
  if (idle > 0 && evictable == 0) return "idle blocks and none evictable";
  return "";
}

}  // namespace penstock::worker
