// Block names as the router computes them: keyed BLAKE3 chains of common/text. Owner: the engine. Any thread.
#pragma once

#include "common/text/block_hash.hpp"
#include "worker/core/scheduler/scheduler.hpp"
#include "worker/engine/engine.hpp"

namespace penstock::worker {

class BlakePrefixHasher final : public PrefixHasher {
 public:
  /// Throws std::invalid_argument if hash_key is neither empty nor 32 bytes.
  BlakePrefixHasher(const EngineConfig& config, std::uint32_t block_tokens);
  BlockHash root(const std::string& cache_salt, const std::string& adapter) const override;
  std::vector<BlockHash> hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const override;

 private:
  text::BlockHasher hasher(const std::string& cache_salt, const std::string& adapter) const;

  text::BlockHashKey key_;
  text::BlockExtraKeys extra_;
  std::uint32_t block_tokens_;
  text::BlockHasher plain_;  // chains depend on the parent only, so that one hasher serves all roots
};

}  // namespace penstock::worker
