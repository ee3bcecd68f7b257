// Remembers the block hashes of prompts seen before, so that a prompt that repeats or extends an earlier one costs a
// look at its tokens instead of the BLAKE3 chain over them. What is remembered are runs of blocks, known by the hash
// before them (which stands for all that came earlier, salt included) and by their tokens, which are compared in full:
// the result is exactly that of BlockHasher::hash_blocks.
// Any number of threads may call at once. Bounded by bytes_max; of four runs that fall together the oldest goes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/types.hpp"
#include "common/text/block_hash.hpp"

namespace penstock::text {

class BlockHashCache {
 public:
  static constexpr std::size_t bytes_max_default = std::size_t{16} << 20;
  static constexpr std::size_t run_blocks = 16;
  struct Stats {
    std::uint64_t hit_blocks = 0;   // found
    std::uint64_t miss_blocks = 0;  // hashed, the blocks after the last whole run included
  };

  /// For hashers with `block_tokens` tokens a block; others are served without the cache.
  explicit BlockHashCache(std::uint32_t block_tokens, std::size_t bytes_max = bytes_max_default);

  /// Exactly what hasher.hash_blocks(tokens) gives.
  std::vector<BlockHash> hash_blocks(const BlockHasher& hasher, std::span<const TokenId> tokens);

  Stats stats() const;

 private:
  using Tokens = std::span<const TokenId>;
  using Hashes = std::array<BlockHash, run_blocks>;
  struct Run {
    BlockHash parent;
    Hashes hashes;
    std::vector<TokenId> tokens;
  };
  struct Set {
    std::array<std::uint64_t, 4> tags{};
    std::array<std::unique_ptr<Run>, 4> runs;
    std::size_t oldest = 0;
  };
  using Tags = std::array<std::uint64_t, 16>;  // of runs that follow one another
  void fetch(const Tags& tags, std::size_t count) const;
  bool find(std::uint64_t tag, const BlockHash& parent, Tokens tokens, std::span<BlockHash> out);
  void insert(std::uint64_t tag, const BlockHash& parent, Tokens tokens, const std::vector<BlockHash>& hashes);

  const std::uint32_t block_tokens_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<Set> sets_;
  Stats stats_;
};

}  // namespace penstock::text
