#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "common/time/random.hpp"
#include "worker/core/kv/kv_cache.hpp"

namespace penstock::worker {
namespace {

using protocol::AllBlocksCleared;
using protocol::BlockRemoved;
using protocol::BlockStored;
using protocol::CacheEvent;
using testing::ElementsAre;

constexpr BlockHash root{1, 1};

BlockHash hash_of(std::uint64_t n) {
  return {7, n};
}

// A chain of blocks with two tokens each: block i of chain c holds {c, i}.
struct Chain {
  TokenId id;
  std::size_t length;
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> out;
    for (TokenId i = 0; i < length; ++i) out.insert(out.end(), {id, i});
    return out;
  }
  std::vector<BlockHash> hashes() const {
    std::vector<BlockHash> out;
    for (std::size_t i = 0; i < length; ++i) out.push_back(hash_of(id * 1000 + i));
    return out;
  }
};

// Allocates and commits what is not cached yet; the table holds one reference of each.
std::vector<BlockIndex> hold(KvCache& cache, const Chain& chain) {
  const auto tokens = chain.tokens();
  const auto hashes = chain.hashes();
  auto table = cache.match(root, hashes, tokens);
  for (auto i = static_cast<std::uint32_t>(table.size()); i < chain.length; ++i) {
    const auto block = cache.allocate();
    if (!block) break;
    KvCache::Place place{hashes[i], i == 0 ? root : hashes[i - 1], {}, i};
    if (i > 0) place.parent = table.back();
    table.push_back(*cache.commit(*block, place, std::span(tokens).subspan(i * 2, 2)));
  }
  return table;
}

void release_all(KvCache& cache, const std::vector<BlockIndex>& table) {
  for (const BlockIndex block : table) cache.release(block);
}

TEST(KvCache, FindsACommittedChainAgain) {
  KvCache cache(8, 2);
  const Chain chain{5, 3};
  const auto first = hold(cache, chain);
  release_all(cache, first);
  EXPECT_EQ(cache.available(), 8u);
  EXPECT_EQ(cache.cached(), 3u);
  EXPECT_EQ(cache.match(root, chain.hashes(), chain.tokens()), first);
  EXPECT_EQ(cache.available(), 5u);
  EXPECT_EQ(cache.find_contradiction(), "");
}

TEST(KvCache, AHashWithOtherTokensIsNoHit) {
  KvCache cache(8, 2);
  release_all(cache, hold(cache, {5, 3}));
  auto tokens = Chain{5, 3}.tokens();
  tokens[2] = 99;
  EXPECT_EQ(cache.match(root, Chain{5, 3}.hashes(), tokens).size(), 1u);
  EXPECT_TRUE(cache.match(BlockHash{2, 2}, Chain{5, 3}.hashes(), Chain{5, 3}.tokens()).empty()) << "another root";
}

TEST(KvCache, EvictsTheLeafThatWasUnusedLongest) {
  KvCache cache(4, 2);
  release_all(cache, hold(cache, {1, 2}));
  release_all(cache, hold(cache, {2, 2}));
  cache.take_events();
  const auto block = cache.allocate();
  ASSERT_TRUE(block);
  EXPECT_THAT(cache.take_events(), ElementsAre(CacheEvent(BlockRemoved{{hash_of(1001)}})));
  EXPECT_EQ(cache.match(root, Chain{2, 2}.hashes(), Chain{2, 2}.tokens()).size(), 2u);
  EXPECT_TRUE(cache.allocate()) << "the rest of chain 1";
  EXPECT_FALSE(cache.allocate()) << "everything is held";
  EXPECT_EQ(cache.find_contradiction(), "");
}

TEST(KvCache, EqualContentBecomesOneBlock) {
  KvCache cache(4, 2);
  const auto a = cache.allocate(), b = cache.allocate();
  const std::vector<TokenId> tokens{1, 0};
  const KvCache::Place place{hash_of(1), root, {}, 0};
  EXPECT_EQ(cache.commit(*a, place, tokens), a);
  EXPECT_EQ(cache.commit(*b, place, tokens), a);
  EXPECT_EQ(cache.references(*a), 2u);
  EXPECT_EQ(cache.available(), 3u);
  EXPECT_EQ(cache.take_events().size(), 1u) << "stored once";
  release_all(cache, {*a, *a});
  EXPECT_EQ(cache.available(), 4u);
  EXPECT_TRUE(cache.take_events().empty()) << "still cached";
}

TEST(KvCache, EventsCarryAbsolutePositionsAndParents) {
  KvCache cache(8, 2);
  auto table = hold(cache, {1, 2});
  EXPECT_THAT(cache.take_events(), ElementsAre(CacheEvent(BlockStored{0, {}, {hash_of(1000), hash_of(1001)}})));
  release_all(cache, table);
  table = hold(cache, {1, 4});
  EXPECT_THAT(cache.take_events(),
              ElementsAre(CacheEvent(BlockStored{2, hash_of(1001), {hash_of(1002), hash_of(1003)}})));
  cache.forget(table[2]);
  EXPECT_THAT(cache.take_events(), ElementsAre(CacheEvent(BlockRemoved{{hash_of(1003), hash_of(1002)}})));
  EXPECT_EQ(cache.references(table[3]), 1u) << "still held";
  cache.clear();
  EXPECT_THAT(cache.take_events(), ElementsAre(CacheEvent(AllBlocksCleared{})));
  release_all(cache, table);
  EXPECT_EQ(cache.available(), 8u);
  EXPECT_EQ(cache.find_contradiction(), "");
}

TEST(KvCache, APinnedBlockOutlivesItsSequence) {
  KvCache cache(2, 2);
  const auto table = hold(cache, {1, 2});
  for (const BlockIndex block : table) cache.pin(block);
  release_all(cache, table);
  EXPECT_EQ(cache.pinned(), 2u);
  EXPECT_FALSE(cache.allocate());
  for (const BlockIndex block : table) cache.unpin(block);
  EXPECT_EQ(cache.pinned(), 0u);
  EXPECT_TRUE(cache.allocate());
}

TEST(KvCache, GenerationChangesWithEveryOwner) {
  KvCache cache(1, 2);
  const auto block = *cache.allocate();
  const auto generation = cache.generation(block);
  cache.release(block);
  EXPECT_EQ(*cache.allocate(), block);
  EXPECT_NE(cache.generation(block), generation);
}

// A mirror that applies events knows exactly what the cache holds, and a snapshot says the same.
TEST(KvCache, EventsAndSnapshotDescribeTheCache) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    KvCache cache(12, 2);
    std::set<BlockHash> mirror;
    std::deque<std::vector<BlockIndex>> tables;
    for (int step = 0; step < 300; ++step) {
      if (random.below(2) == 0) {
        tables.push_back(hold(cache, {static_cast<TokenId>(random.below(4)), random.below(6)}));
      } else if (!tables.empty()) {
        if (random.below(8) == 0 && !tables.front().empty())
          cache.forget(tables.front()[random.below(tables.front().size())]);
        release_all(cache, tables.front());
        tables.pop_front();
      }
      for (const CacheEvent& event : cache.take_events()) {
        if (const auto* stored = std::get_if<BlockStored>(&event)) {
          EXPECT_TRUE(stored->position == 0 || mirror.contains(stored->parent));
          for (const BlockHash hash : stored->blocks) EXPECT_TRUE(mirror.insert(hash).second) << "stored twice";
        } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
          for (const BlockHash hash : removed->blocks) EXPECT_EQ(mirror.erase(hash), 1u);
        }
      }
      std::set<BlockHash> snapshot;
      for (const BlockStored& run : cache.snapshot(2)) {
        EXPECT_TRUE(run.position == 0 || snapshot.contains(run.parent)) << "parents first";
        snapshot.insert(run.blocks.begin(), run.blocks.end());
      }
      ASSERT_EQ(snapshot, mirror);
      ASSERT_EQ(cache.find_contradiction(), "");
    }
  }
}

}  // namespace
}  // namespace penstock::worker
