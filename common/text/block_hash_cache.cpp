#include "common/text/block_hash_cache.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace penstock::text {
namespace {

std::uint64_t tag_of(const BlockHash& parent, std::span<const TokenId> tokens) {
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return parent.low ^ std::hash<std::string_view>{}(bytes);
}

}  // namespace

BlockHashCache::BlockHashCache(std::uint32_t block_tokens, std::size_t bytes_max) : block_tokens_(block_tokens) {
  const std::size_t set_bytes = sizeof(Set) + 4 * (sizeof(Run) + run_blocks * block_tokens * sizeof(TokenId));
  sets_.resize(bytes_max / set_bytes);
}

std::vector<BlockHash> BlockHashCache::hash_blocks(const BlockHasher& hasher, std::span<const TokenId> tokens) {
  if (sets_.empty() || hasher.block_tokens() != block_tokens_) return hasher.hash_blocks(tokens);
  const std::size_t run_tokens = run_blocks * block_tokens_;
  std::vector<BlockHash> hashes(tokens.size() / block_tokens_);
  BlockHash parent = hasher.root();
  std::size_t done = 0;  // blocks
  for (; done + run_blocks <= hashes.size(); done += run_blocks) {
    const Tokens run = tokens.subspan(done * block_tokens_, run_tokens);
    const std::uint64_t tag = tag_of(parent, run);
    if (!find(tag, parent, run, std::span(hashes).subspan(done, run_blocks))) {
      const auto fresh = hasher.hash_blocks(parent, run);
      std::copy(fresh.begin(), fresh.end(), hashes.begin() + static_cast<std::ptrdiff_t>(done));
      insert(tag, parent, run, fresh);
    }
    parent = hashes[done + run_blocks - 1];
  }
  const auto last = hasher.hash_blocks(parent, tokens.subspan(done * block_tokens_));
  std::copy(last.begin(), last.end(), hashes.begin() + static_cast<std::ptrdiff_t>(done));
  const std::lock_guard lock(mutex_);
  stats_.miss_blocks += last.size();
  return hashes;
}

bool BlockHashCache::find(std::uint64_t tag, const BlockHash& parent, Tokens tokens, std::span<BlockHash> out) {
  const std::lock_guard lock(mutex_);
  const Set& set = sets_[tag % sets_.size()];
  for (std::size_t way = 0; way < set.runs.size(); ++way) {
    const Run* run = set.runs[way].get();
    if (set.tags[way] != tag || run == nullptr || run->parent != parent) continue;
    if (!std::equal(run->tokens.begin(), run->tokens.end(), tokens.begin(), tokens.end())) continue;
    std::copy(run->hashes.begin(), run->hashes.end(), out.begin());
    stats_.hit_blocks += run_blocks;
    return true;
  }
  stats_.miss_blocks += run_blocks;
  return false;
}

void BlockHashCache::insert(std::uint64_t tag, const BlockHash& parent, Tokens tokens,
                            const std::vector<BlockHash>& hashes) {
  auto run = std::make_unique<Run>();
  run->parent = parent;
  run->tokens.assign(tokens.begin(), tokens.end());
  std::copy(hashes.begin(), hashes.end(), run->hashes.begin());
  const std::lock_guard lock(mutex_);
  Set& set = sets_[tag % sets_.size()];
  set.tags[set.oldest] = tag;
  set.runs[set.oldest] = std::move(run);
  set.oldest = (set.oldest + 1) % set.runs.size();
}

BlockHashCache::Stats BlockHashCache::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace penstock::text
