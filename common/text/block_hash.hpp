// The identity of a KV block: a 128-bit keyed BLAKE3 chain over everything that its contents depend on. Router and
// workers compute the same hashes from the same tokens, so the router knows what a worker caches without asking.
//
//   root    = BLAKE3(key, "penstock.block.root.1\0" | u32 block_tokens | each extra: u32 size, bytes)
//   hash[i] = BLAKE3(key, hash[i-1] | tokens of block i, 3 bytes each)       (with hash[-1] = root)
//
// cut to 16 bytes, integers little-endian. Three bytes a token make a block of 16 exactly one 64-byte compression; if
// a block has an id of 2^24 or more, all ids of that block take 4 bytes, and the lengths tell the two forms apart.
// A BlockHasher never changes: any number of threads may use one at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/types.hpp"

namespace penstock::text {

using BlockHashKey = std::array<std::uint8_t, 32>;

/// The published key for local mode. Clusters mount a secret one, so that hashes reveal nothing about prompts.
const BlockHashKey& local_block_hash_key();

inline constexpr std::uint32_t block_tokens_default = 16;

/// What a block's contents depend on besides its tokens. Absent parts are empty.
struct BlockExtraKeys {
  std::string model_revision;  // digest of the weights and what else changes the numbers
  std::string kv_dtype;        // as the worker's WELCOME names it
  std::string adapter_digest;
  std::string tenant_salt;  // cache_salt of the request; keeps tenants from probing each other's caches
};

class BlockHasher {
 public:
  BlockHasher(const BlockHashKey& key, const BlockExtraKeys& extra, std::uint32_t block_tokens = block_tokens_default);

  /// The parent of a sequence's first block.
  BlockHash root() const { return root_; }
  std::uint32_t block_tokens() const { return block_tokens_; }

  /// One hash a full block, first to last; tokens beyond the last full block do not count.
  std::vector<BlockHash> hash_blocks(std::span<const TokenId> tokens) const { return hash_blocks(root_, tokens); }
  /// Goes on after the block `parent`.
  std::vector<BlockHash> hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const;
  /// The hash of the one block that follows `parent`; exactly block_tokens() tokens.
  BlockHash extend(BlockHash parent, std::span<const TokenId> block) const;
  /// A parent that also depends on what placeholder tokens of the next block stand for, such as an image's digest.
  BlockHash with_media(BlockHash parent, std::string_view media_digest) const;

  /// Names algorithm, version and block size; router and worker must agree. Says nothing about the key.
  std::string scheme_name() const;
  /// 8 bytes that differ when the keys or extra keys do, safe to publish; for the comparison at connect.
  std::uint64_t key_check() const;

 private:
  BlockHashKey key_;
  std::uint32_t block_tokens_;
  BlockHash root_;
};

}  // namespace penstock::text
