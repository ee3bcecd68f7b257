#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "common/text/prefix_token_cache.hpp"
#include "tests/unit/common/text_support.hpp"

namespace penstock::text {
namespace {

using test::default_tokenizer;

std::string words(penstock::Random& random, std::size_t bytes) {
  static constexpr std::array<std::string_view, 10> all = {
      "the ", "router ", "sees", " a", "token, ", "prefix", ".\n", " caf\xC3\xA9 ", "42 ", "\xE4\xB8\xAD\xE3\x80\x82"};
  std::string text;
  while (text.size() < bytes) text += all[random.below(all.size())];
  return text;
}

void expect_equal(PrefixTokenCache& cache, const std::string& text) {
  for (const SpecialText special : {SpecialText::parse, SpecialText::as_text}) {
    for (const AddSpecial add : {AddSpecial::no, AddSpecial::yes}) {
      const EncodeOptions options{.add_special = add, .special_text = special};
      ASSERT_EQ(cache.encode(text, options).value(), cache.tokenizer().encode(text, options).value())
          << "seed " << test::seed();
    }
  }
}

TEST(PrefixTokenCache, AllPiecesShareTheWork) {
  PrefixTokenCache cache(default_tokenizer());
  penstock::Random random(test::seed());
  std::string text;
  while (text.size() < 200'000) text += std::string(3000, static_cast<char>('a' + random.below(26))) + " ";
  EncodeWork work{1'000'000};
  const EncodeOptions bounded{.work = &work};
  const auto refused = cache.encode(text, bounded);
  ASSERT_FALSE(refused) << "seed " << test::seed();
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  work = {};
  ASSERT_TRUE(cache.encode(text, bounded));
  work.steps_left = 0;
  EXPECT_TRUE(cache.encode(text, bounded)) << "pieces that are known cost nothing";
}

class CachedPretokenizers : public ::testing::TestWithParam<const char*> {};

TEST_P(CachedPretokenizers, GivesExactlyTheIdsOfEncode) {
  VocabularyParts parts = test::default_vocabulary().parts;
  parts.pre = GetParam();
  parts.add_bos = true;
  PrefixTokenCache cache(Tokenizer::from_vocabulary(parts).value(), {.bytes_max = 120'000, .text_bytes_min = 0});
  penstock::Random random(test::seed());
  std::string conversation;
  for (int turn = 0; turn < 14; ++turn) {
    conversation += "<|im_start|>user\n";
    conversation += turn % 3 == 0 ? test::random_text(random, 400) : words(random, random.below(6000));
    expect_equal(cache, conversation);
    conversation += "<|im_end|>\n";
    expect_equal(cache, conversation);
    expect_equal(cache, test::random_text(random, random.below(2000)));
  }
  EXPECT_GT(cache.stats().hit_bytes, 0u);
  EXPECT_LE(cache.stats().bytes, 120'000u);
  EXPECT_GT(cache.stats().evictions, 0u);
}

// With a vocabulary in which nearly all neighbours merge, a cut at a wrong place would show.
TEST_P(CachedPretokenizers, CutsNeverSplitAToken) {
  PrefixTokenCache cache(test::pairs_tokenizer(GetParam()), {.text_bytes_min = 0});
  penstock::Random random(test::seed());
  for (int i = 0; i < 8; ++i) expect_equal(cache, test::random_text(random, 6000));
}

INSTANTIATE_TEST_SUITE_P(All, CachedPretokenizers, ::testing::Values("gpt-2", "smollm", "llama-bpe", "qwen2"),
                         test::pre_name);

TEST(PrefixTokenCache, AnExtendedPromptIsMostlyAHit) {
  PrefixTokenCache cache(default_tokenizer());
  penstock::Random random(test::seed());
  std::string prompt = "<|im_start|>system\n" + words(random, 100'000);
  ASSERT_TRUE(cache.encode(prompt));
  EXPECT_EQ(cache.stats().hit_bytes, 0u);
  prompt += " and one more question<|im_end|>";
  ASSERT_TRUE(cache.encode(prompt));
  EXPECT_GT(cache.stats().hit_bytes, 90'000u);
}

TEST(PrefixTokenCache, RefusesWhatEncodeRefuses) {
  PrefixTokenCache cache(default_tokenizer());
  EXPECT_FALSE(cache.encode(std::string(5000, 'a') + "\xFF"));
  EXPECT_EQ(cache.stats().bytes, 0u);
}

TEST(PrefixTokenCache, ZeroBytesTurnsItOff) {
  PrefixTokenCache cache(default_tokenizer(), {.bytes_max = 0});
  penstock::Random random(test::seed());
  expect_equal(cache, words(random, 20'000));
  EXPECT_EQ(cache.stats().pieces, 0u);
}

TEST(PrefixTokenCache, ManyThreadsMayEncode) {
  PrefixTokenCache cache(default_tokenizer(), {.bytes_max = 60'000});
  std::array<int, 4> wrong{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&cache, &wrong, t] {
        penstock::Random random(test::seed() + static_cast<std::uint32_t>(t / 2));
        for (int i = 0; i < 10; ++i) {
          const std::string text = words(random, 15'000);
          wrong[t] += cache.encode(text).value() == default_tokenizer()->encode(text).value() ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

}  // namespace
}  // namespace penstock::text
