#include <gtest/gtest.h>

#include <numeric>

#include "common/text/block_hash.hpp"
#include "common/text/block_hash_cache.hpp"
#include "common/time/random.hpp"

namespace penstock::text {
namespace {

std::vector<TokenId> counting(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0u);
  return tokens;
}

const BlockExtraKeys extra{.model_revision = "rev", .kv_dtype = "bf16", .adapter_digest = "", .tenant_salt = "tenant"};

// Computed from the scheme in block_hash.hpp with another implementation of BLAKE3. They never change: routers and
// workers of different versions must agree.
TEST(BlockHash, KnownAnswers) {
  const BlockHasher hasher(local_block_hash_key(), extra);
  EXPECT_EQ(to_string(hasher.root()), "6b17cfb0d8dadbf5ecb45944ed533ce9");
  const auto hashes = hasher.hash_blocks(counting(40));
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(to_string(hashes[0]), "16765ff71499ed14d6c52370703b9404");
  EXPECT_EQ(to_string(hashes[1]), "6c4f4ea0e6175c3bc458c5eda528408e");
  auto wide = counting(16);
  wide[0] = 1 << 24;
  EXPECT_EQ(to_string(hasher.extend(hasher.root(), wide)), "c604865212e88bc499c9be9684d152a0");
  EXPECT_EQ(to_string(hasher.with_media(hasher.root(), "img")), "260fef6a8823395524489aaaf81b57fa");
  const BlockHasher small(local_block_hash_key(), {.tenant_salt = "\xC3\xA9"}, 4);
  EXPECT_EQ(to_string(small.root()), "f5134dbb9ecb85a733ba2fd021a30dc6");
  EXPECT_EQ(to_string(small.extend(small.root(), std::vector<TokenId>{49151, 0, 1, 2})),
            "49da5bfac00889acd1ec4a4cf203246d");
}

TEST(BlockHash, ExtendingBlockByBlockEqualsHashingAllAtOnce) {
  for (const std::uint32_t block : {1u, 4u, 16u, 17u, 64u}) {
    const BlockHasher hasher(local_block_hash_key(), extra, block);
    const auto tokens = counting(block * 5 + block / 2);
    const auto all = hasher.hash_blocks(tokens);
    ASSERT_EQ(all.size(), 5u);
    BlockHash parent = hasher.root();
    for (std::size_t i = 0; i < all.size(); ++i) {
      parent = hasher.extend(parent, std::span(tokens).subspan(i * block, block));
      EXPECT_EQ(parent, all[i]);
    }
    EXPECT_EQ(hasher.hash_blocks(all[1], std::span(tokens).subspan(2 * block)),
              std::vector<BlockHash>(all.begin() + 2, all.end()));
  }
}

TEST(BlockHash, EveryIngredientMatters) {
  const auto tokens = counting(32);
  const auto base = BlockHasher(local_block_hash_key(), extra).hash_blocks(tokens).back();
  BlockHashKey other_key = local_block_hash_key();
  other_key[31] ^= 1;
  EXPECT_NE(BlockHasher(other_key, extra).hash_blocks(tokens).back(), base);
  EXPECT_NE(BlockHasher(other_key, extra).key_check(), BlockHasher(local_block_hash_key(), extra).key_check());
  const std::vector<std::string BlockExtraKeys::*> members = {
      &BlockExtraKeys::model_revision, &BlockExtraKeys::kv_dtype, &BlockExtraKeys::adapter_digest,
      &BlockExtraKeys::tenant_salt};
  for (const auto member : members) {
    BlockExtraKeys changed = extra;
    changed.*member += "x";
    EXPECT_NE(BlockHasher(local_block_hash_key(), changed).hash_blocks(tokens).back(), base);
  }
  // Moving a byte from one part to the next is a change too.
  EXPECT_NE(BlockHasher(local_block_hash_key(), {.model_revision = "re", .kv_dtype = "vbf16", .tenant_salt = "tenant"})
                .hash_blocks(tokens)
                .back(),
            base);
  auto first_changed = tokens;
  first_changed[0] += 1;
  EXPECT_NE(BlockHasher(local_block_hash_key(), extra).hash_blocks(first_changed).back(), base);
}

TEST(BlockHash, PartialBlocksDoNotCount) {
  const BlockHasher hasher(local_block_hash_key(), {});
  EXPECT_TRUE(hasher.hash_blocks(counting(15)).empty());
  EXPECT_TRUE(hasher.hash_blocks({}).empty());
  EXPECT_EQ(hasher.hash_blocks(counting(31)).size(), 1u);
  EXPECT_EQ(hasher.scheme_name(), "penstock-blake3-128-v1/16");
}

std::vector<TokenId> random_tokens(Random& random, std::size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(50'000));
  return tokens;
}

TEST(BlockHashCache, GivesWhatTheHasherGives) {
  Random random(11);
  const std::vector<BlockHasher> hashers{{local_block_hash_key(), extra},
                                         {local_block_hash_key(), {.tenant_salt = "other"}},
                                         {local_block_hash_key(), extra, 4}};
  BlockHashCache cache(16);
  std::vector<std::vector<TokenId>> prompts{{}};
  for (int round = 0; round < 300; ++round) {
    // A new prompt, or an earlier one cut somewhere and continued.
    std::vector<TokenId> prompt = prompts[random.below(prompts.size())];
    if (!prompt.empty()) prompt.resize(random.below(prompt.size()));
    const auto more = random_tokens(random, random.below(700));
    prompt.insert(prompt.end(), more.begin(), more.end());
    const BlockHasher& hasher = hashers[random.below(hashers.size())];
    ASSERT_EQ(cache.hash_blocks(hasher, prompt), hasher.hash_blocks(prompt)) << "round " << round;
    prompts.push_back(std::move(prompt));
  }
  EXPECT_GT(cache.stats().hit_blocks, 0u);
}

TEST(BlockHashCache, RemembersRunsOfAnEarlierPrompt) {
  Random random(12);
  const BlockHasher hasher(local_block_hash_key(), extra);
  BlockHashCache cache(16);
  auto prompt = random_tokens(random, 4'096);
  (void)cache.hash_blocks(hasher, prompt);
  EXPECT_EQ(cache.stats().hit_blocks, 0u);
  prompt.resize(4'200);
  (void)cache.hash_blocks(hasher, prompt);
  EXPECT_EQ(cache.stats().hit_blocks, 256u);
  EXPECT_EQ(cache.stats().miss_blocks, 256u + 6u);
  // Another salt makes other hashes of the same tokens.
  (void)cache.hash_blocks(BlockHasher(local_block_hash_key(), {.tenant_salt = "other"}), prompt);
  EXPECT_EQ(cache.stats().hit_blocks, 256u);
}

TEST(BlockHashCache, StaysCorrectWhenFull) {
  Random random(13);
  const BlockHasher hasher(local_block_hash_key(), extra);
  BlockHashCache small(16, 16 << 10), off(16, 0);
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 20; ++i) prompts.push_back(random_tokens(random, 3'000));
  for (int round = 0; round < 3; ++round) {
    for (const auto& prompt : prompts) {
      const auto expected = hasher.hash_blocks(prompt);
      ASSERT_EQ(small.hash_blocks(hasher, prompt), expected);
      ASSERT_EQ(off.hash_blocks(hasher, prompt), expected);
    }
  }
  EXPECT_EQ(off.stats().hit_blocks, 0u);
}

}  // namespace
}  // namespace penstock::text
