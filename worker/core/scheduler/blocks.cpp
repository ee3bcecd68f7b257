// Block tables of choices: names, prefix cache, forks.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

void Scheduler::extend_hashes(Sequence& sequence, std::size_t tokens) {
  const std::size_t from = sequence.hashes.size() * config_.block_tokens;
  const std::size_t to = tokens / config_.block_tokens * config_.block_tokens;
  if (to <= from) return;
  const BlockHash parent = sequence.hashes.empty() ? sequence.request->root : sequence.hashes.back();
  const auto more = hasher_.hash_blocks(parent, std::span(sequence.tokens).subspan(from, to - from));
  sequence.hashes.insert(sequence.hashes.end(), more.begin(), more.end());
}

// Only blocks whose every token is computed get here, so nothing unwritten is ever advertised.
void Scheduler::commit_blocks(Sequence& sequence) {
  if (!config_.prefix_cache) return;
  const std::size_t full = sequence.computed / config_.block_tokens;
  if (sequence.committed >= full || !sequence.cacheable) return;
  extend_hashes(sequence, full * config_.block_tokens);
  for (std::size_t i = sequence.committed; i < full; ++i) {
    KvCache::Place place;
    place.hash = sequence.hashes[i];
    place.parent_hash = i == 0 ? sequence.request->root : sequence.hashes[i - 1];
    if (i > 0) place.parent = sequence.blocks[i - 1];
    place.position = static_cast<std::uint32_t>(i);
    const auto tokens = std::span(sequence.tokens).subspan(i * config_.block_tokens, config_.block_tokens);
    const auto block = cache_.commit(sequence.blocks[i], place, tokens);
    if (!block) {
      sequence.cacheable = false;
      return;
    }
    sequence.blocks[i] = *block;
    sequence.committed = i + 1;
  }
}

// Last block first, so that leaves are older than their parents in the order of eviction.
void Scheduler::release_blocks(Sequence& sequence) {
  for (std::size_t i = sequence.blocks.size(); i > 0; --i) cache_.release(sequence.blocks[i - 1]);
  sequence.blocks.clear();
  sequence.committed = 0;
  sequence.computed = 0;
  sequence.cacheable = true;
}

// Blocks with output tokens that do not count leave the cache, unless another choice has the same tokens for good.
void Scheduler::forget_output(Sequence& sequence, std::uint32_t tokens_kept) {
  const std::size_t first = (sequence.prompt + tokens_kept) / config_.block_tokens;
  for (std::size_t i = first; i < sequence.committed; ++i) {
    if (cache_.references(sequence.blocks[i]) > 1) continue;
    cache_.forget(sequence.blocks[i]);
    return;  // with all that follow it
  }
}

std::optional<BlockIndex> Scheduler::copy_of(BlockIndex from) {
  const auto to = cache_.allocate();
  if (!to) return std::nullopt;
  cache_.retain(from);
  copies_.push_back({from, *to, cache_.generation(*to)});
  return to;
}

// A target that was given up meanwhile belongs to somebody else now, or to nobody: it must not be written.
void Scheduler::prune_copies() {
  std::erase_if(copies_, [&](const PendingCopy& copy) {
    const bool is_wanted = cache_.generation(copy.to) == copy.to_generation && cache_.references(copy.to) > 0;
    if (!is_wanted) cache_.release(copy.from);
    return !is_wanted;
  });
}

// `to` starts with the KV of the first `tokens` tokens of `from`: full blocks are shared, the rest is copied into a
// block of its own. Without room for the copy the rest is computed again.
void Scheduler::share_prefix(Sequence& to, const Sequence& from, std::size_t tokens) {
  PENSTOCK_CHECK(to.blocks.empty() && from.computed >= tokens, "computed", from.computed, "tokens", tokens);
  const std::size_t full = tokens / config_.block_tokens;
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + static_cast<std::ptrdiff_t>(full));
  for (const BlockIndex block : to.blocks) cache_.retain(block);
  to.committed = std::min(from.committed, full);
  to.cacheable = from.cacheable;
  to.computed = full * config_.block_tokens;
  if (to.hashes.size() < full)
    to.hashes.assign(from.hashes.begin(),
                     from.hashes.begin() + static_cast<std::ptrdiff_t>(std::min(full, from.hashes.size())));
  if (tokens == to.computed) return;
  if (const auto copy = copy_of(from.blocks[full])) {
    to.blocks.push_back(*copy);
    to.computed = tokens;
  }
}

void Scheduler::fork_followers(Sequence& leader, std::size_t tokens) {
  Request& request = *leader.request;
  for (const auto& follower : request.sequences) {
    if (follower->state != SequenceState::blocked) continue;
    share_prefix(*follower, leader, tokens);
    follower->cached_tokens = leader.cached_tokens;
    follower->transferred_tokens = leader.transferred_tokens;
    enqueue(*follower, now_);
  }
  request.leader = nullptr;
}

}  // namespace penstock::worker
