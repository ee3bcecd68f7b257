#include "common/text/block_hash_cache.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

namespace penstock::text {
namespace {

/// A run's tag stands for its tokens and all before them, without waiting for the hashes of those: the tags of a prompt
/// are known before the first look-up. Four lanes, since one multiplication waits for the one before it.
std::uint64_t extend_tag(std::uint64_t tag, std::span<const TokenId> tokens) {
  constexpr std::uint64_t factor = 0x9E3779B97F4A7C15ull;
  std::array<std::uint64_t, 4> lanes{tag, tag + 1, tag + 2, tag + 3};
  std::size_t at = 0;
  for (; at + 8 <= tokens.size(); at += 8) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), tokens.data() + at, sizeof words);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const std::uint64_t x = (lanes[lane] ^ words[lane]) * factor;
      lanes[lane] = x ^ (x >> 32);
    }
  }
  for (; at < tokens.size(); ++at) lanes[0] = (lanes[0] ^ tokens[at]) * factor;
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum = (std::rotl(sum, 23) ^ lane) * factor;
  return sum ^ (sum >> 32);
}

}  // namespace

BlockHashCache::BlockHashCache(std::uint32_t block_tokens, std::size_t bytes_max) : block_tokens_(block_tokens) {
  const std::size_t set_bytes = sizeof(Set) + 4 * (sizeof(Run) + run_blocks * block_tokens * sizeof(TokenId));
  sets_.resize(bytes_max / set_bytes);
}

std::vector<BlockHash> BlockHashCache::hash_blocks(const BlockHasher& hasher, std::span<const TokenId> tokens) {
  if (sets_.empty() || hasher.block_tokens() != block_tokens_) return hasher.hash_blocks(tokens);
  const std::size_t run_tokens = run_blocks * block_tokens_, runs = tokens.size() / run_tokens;
  std::vector<BlockHash> hashes(tokens.size() / block_tokens_);
  BlockHash parent = hasher.root();
  std::uint64_t tag = parent.low;
  Tags tags{};
  for (std::size_t i = 0; i < runs; ++i) {
    if (i % tags.size() == 0) {
      const std::size_t count = std::min(tags.size(), runs - i);
      for (std::size_t j = 0; j < count; ++j) {
        tags[j] = tag = extend_tag(tag, tokens.subspan((i + j) * run_tokens, run_tokens));
      }
      fetch(tags, count);
    }
    const Tokens run = tokens.subspan(i * run_tokens, run_tokens);
    const auto out = std::span(hashes).subspan(i * run_blocks, run_blocks);
    if (!find(tags[i % tags.size()], parent, run, out)) {
      const auto fresh = hasher.hash_blocks(parent, run);
      std::copy(fresh.begin(), fresh.end(), out.begin());
      insert(tags[i % tags.size()], parent, run, fresh);
    }
    parent = out.back();
  }
  const auto last = hasher.hash_blocks(parent, tokens.subspan(runs * run_tokens));
  std::copy(last.begin(), last.end(), hashes.begin() + static_cast<std::ptrdiff_t>(runs * run_blocks));
  const std::lock_guard lock(mutex_);
  stats_.miss_blocks += last.size();
  return hashes;
}

/// Brings what find() will read on its way from memory, all of it at once: the sets, then the runs, then their tokens.
void BlockHashCache::fetch(const Tags& tags, std::size_t count) const {
  const auto lines = [](const void* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at);
  };
  for (std::size_t i = 0; i < count; ++i) lines(&sets_[tags[i] % sets_.size()], sizeof(Set));
  std::array<const Run*, std::tuple_size_v<Tags>> found{};
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) {
    const Set& set = sets_[tags[i] % sets_.size()];
    for (std::size_t way = 0; way < set.runs.size(); ++way) {
      if (set.tags[way] == tags[i]) found[i] = set.runs[way].get();
    }
    if (found[i] != nullptr) lines(found[i], sizeof(Run));
  }
  for (const Run* run : found) {
    if (run != nullptr) lines(run->tokens.data(), 256);  // the rest follows by itself
  }
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
