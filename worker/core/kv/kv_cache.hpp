// The blocks of one KV pool and the prefix cache over them. A block is free, held (by references of sequences or pins
// of transfers), or idle: in the prefix cache and held by nobody. Idle blocks without cached children are taken back, the
// one first that became such the longest ago. So ends of chains go before beginnings, which are shared more often: with
// 64 prefixes of 300 blocks and ends of 32, pools that just hold the prefixes find 0.89 of all blocks; in order of last
// use 0.86 (tests/unit/router/pools). Hashes only index the cache: a hit also compares tokens and parent.
// Owner: the scheduler. Pure. Bounds: everything is allocated at construction; one cached copy of a content at most.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/id.hpp"
#include "common/base/types.hpp"
#include "common/protocol/messages.hpp"

namespace penstock::worker {

class KvCache {
 public:
  KvCache(std::uint32_t blocks, std::uint32_t block_tokens);

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(entries_.size()); }
  std::uint32_t block_tokens() const { return block_tokens_; }
  std::uint32_t blocks_for(std::size_t tokens) const {
    return static_cast<std::uint32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }
  /// Free, or idle and evictable.
  std::uint32_t available() const { return static_cast<std::uint32_t>(free_.size()) + idle_; }
  std::uint32_t cached() const { return static_cast<std::uint32_t>(index_.size()); }
  std::uint32_t pinned() const { return pinned_; }
  std::uint64_t evictions() const { return evictions_; }

  /// A block with one reference and undefined content, evicting if need be; nothing when all are held.
  std::optional<BlockIndex> allocate();
  void retain(BlockIndex block);
  /// Drops a reference. The block goes idle if it is cached, free otherwise.
  void release(BlockIndex block);
  /// As references, but counted apart: a peer reads the block.
  void pin(BlockIndex block);
  void unpin(BlockIndex block);
  /// Changes whenever a block is allocated, so that a stale index can be told.
  std::uint64_t generation(BlockIndex block) const { return entries_[block].generation; }
  std::uint32_t references(BlockIndex block) const { return entries_[block].references; }
  bool is_cached(BlockIndex block) const { return entries_[block].cached; }

  /// The longest cached run of `hashes`, with one reference taken of each block. `tokens` are those of the sequence.
  std::vector<BlockIndex> match(BlockHash root, std::span<const BlockHash> hashes, std::span<const TokenId> tokens);
  /// How many of `hashes` match() would find, contents not compared. A cached block's parent is cached too, so a binary
  /// search does.
  std::size_t count_cached(std::span<const BlockHash> hashes) const;

  /// Where a block stands in its sequence.
  struct Place {
    BlockHash hash;
    BlockHash parent_hash;             // the root at position 0
    std::optional<BlockIndex> parent;  // cached; absent at position 0
    std::uint32_t position = 0;        // block index
  };
  /// Enters a held, fully written block. If its content is cached already, the reference moves to that copy, which is
  /// returned, and this one is released. Nothing when the parent has left the cache: the block stays private.
  std::optional<BlockIndex> commit(BlockIndex block, const Place& place, std::span<const TokenId> tokens);
  /// Takes a block and all that follow it out of the cache; they stay held by their users.
  void forget(BlockIndex block);
  /// Empties the cache; held blocks stay held.
  void clear();

  std::vector<protocol::CacheEvent> take_events();
  /// The whole cache as runs, at most `run_blocks_max` blocks each, parents first.
  std::vector<protocol::BlockStored> snapshot(std::uint32_t run_blocks_max) const;

  /// Recounts everything; the first contradiction in words, or "".
  std::string find_contradiction() const;

 private:
  static constexpr BlockIndex none = ~BlockIndex{0};

  struct Entry {
    std::uint32_t references = 0;
    std::uint32_t pins = 0;
    std::uint64_t generation = 0;
    bool cached = false;
    BlockHash hash;
    BlockHash parent_hash;
    BlockIndex parent = none;
    std::uint32_t position = 0;
    std::uint32_t children = 0;             // cached ones
    BlockIndex older = none, newer = none;  // in the list of evictable blocks
    bool listed = false;
  };

  bool is_held(const Entry& entry) const { return entry.references + entry.pins > 0; }
  void update(BlockIndex block);  // list membership follows state
  void list(BlockIndex block);
  void unlist(BlockIndex block);
  void hold(BlockIndex block, std::uint32_t Entry::* counter);
  void drop(BlockIndex block, std::uint32_t Entry::* counter);
  void uncache(BlockIndex block);
  void note_stored(BlockIndex block);
  std::span<const TokenId> tokens_of(BlockIndex block) const {
    return {tokens_.data() + std::size_t{block} * block_tokens_, block_tokens_};
  }

  std::uint32_t block_tokens_;
  std::vector<Entry> entries_;
  std::vector<TokenId> tokens_;   // of cached blocks
  std::vector<BlockIndex> free_;  // a stack
  std::unordered_map<BlockHash, BlockIndex> index_;
  BlockIndex oldest_ = none, newest_ = none;
  std::uint32_t idle_ = 0;
  std::uint32_t pinned_ = 0;
  std::uint64_t evictions_ = 0;
  std::vector<protocol::CacheEvent> events_;
};

}  // namespace penstock::worker
