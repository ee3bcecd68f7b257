#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "common/text/tokenizer.hpp"
#include "tests/unit/common/text_support.hpp"

namespace penstock::text {
namespace {

using test::default_tokenizer;

constexpr EncodeOptions parse_special{};
constexpr EncodeOptions as_text{.special_text = SpecialText::as_text};

boost::json::array corpus() {
  std::ifstream file("tests/data/tokenizer/smollm2.json");
  std::stringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str()).as_array();
}

std::vector<TokenId> ids_of(const boost::json::value& value) {
  return boost::json::value_to<std::vector<TokenId>>(value);
}

TEST(Tokenizer, GivesTheIdsOfTheReferenceCorpus) {
  ASSERT_GE(corpus().size(), 16u);
  for (const auto& entry : corpus()) {
    const std::string text(entry.at("text").as_string());
    EXPECT_EQ(default_tokenizer()->encode(text).value(), ids_of(entry.at("ids"))) << text;
    EXPECT_EQ(default_tokenizer()->encode_reference(text).value(), ids_of(entry.at("ids"))) << text;
    EXPECT_EQ(default_tokenizer()->decode(ids_of(entry.at("ids")), SkipSpecial::no), text);
  }
}

class Pretokenizers : public ::testing::TestWithParam<const char*> {};

void expect_fast_equals_library(const Tokenizer& tokenizer, std::size_t texts) {
  ASSERT_TRUE(tokenizer.is_segmentable());
  penstock::Random random(test::seed());
  for (std::size_t i = 0; i < texts; ++i) {
    const std::string text = test::random_text(random, 1 + random.below(30));
    for (const EncodeOptions& options : {parse_special, as_text}) {
      const auto fast = tokenizer.encode(text, options).value();
      ASSERT_EQ(fast, tokenizer.encode_reference(text, options).value()) << "seed " << test::seed() << " text " << text;
    }
  }
}

TEST_P(Pretokenizers, FastPathGivesTheLibrarysIds) {
  expect_fast_equals_library(*test::tokenizer_with_pre(GetParam()), 300);
}

TEST_P(Pretokenizers, FastPathSplitsWhereTheLibraryDoes) {
  expect_fast_equals_library(*test::pairs_tokenizer(GetParam()), 600);
}

INSTANTIATE_TEST_SUITE_P(All, Pretokenizers, ::testing::Values("gpt-2", "smollm", "llama-bpe", "qwen2"),
                         test::pre_name);

// Every code point, between others that may join it: shows that both sides know the same character classes.
TEST_P(Pretokenizers, EveryCodePointIsSplitAlike) {
  const auto tokenizer = test::pairs_tokenizer(GetParam());
  std::string text;
  for (std::uint32_t code = 1; code < 0x3100; ++code) {
    if (code >= 0x80 && code < 0x800) {
      text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    } else if (code >= 0x800) {
      text += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
               static_cast<char>(0x80 | (code & 0x3F))};
    } else {
      text += static_cast<char>(code);
    }
    text += code % 3 == 0 ? "a" : code % 3 == 1 ? " !" : "0 ";
  }
  EXPECT_EQ(tokenizer->encode(text).value(), tokenizer->encode_reference(text).value());
}

TEST(Tokenizer, DecodingGivesBackEveryText) {
  const auto all_bytes = test::pairs_tokenizer("smollm");
  penstock::Random random(test::seed());
  for (int i = 0; i < 1000; ++i) {
    const std::string text = test::random_text(random, 25);
    ASSERT_EQ(all_bytes->decode(all_bytes->encode(text).value(), SkipSpecial::no), text) << "seed " << test::seed();
    // The default model's vocabulary has no token for the bytes that begin planes 4 and up, nor for these controls.
    constexpr std::string_view missing_controls = "\x04\x06\x13\x14\x16\x1d";
    const auto has_no_token = [&](char c) {
      return static_cast<unsigned char>(c) >= 0xF1 || missing_controls.find(c) != std::string_view::npos;
    };
    if (std::any_of(text.begin(), text.end(), has_no_token)) continue;
    const auto ids = default_tokenizer()->encode(text).value();
    ASSERT_EQ(default_tokenizer()->decode(ids, SkipSpecial::no), text) << "seed " << test::seed();
  }
}

TEST(Tokenizer, SpecialTokensInTextAreParsedOnlyWhenAsked) {
  const auto parsed = default_tokenizer()->encode("<|im_end|>", parse_special).value();
  EXPECT_EQ(parsed, std::vector<TokenId>{2});
  const auto plain = default_tokenizer()->encode("hi<|im_end|>\n", as_text).value();
  for (const TokenId id : plain) EXPECT_FALSE(default_tokenizer()->is_special(id)) << id;
  EXPECT_EQ(default_tokenizer()->decode(plain, SkipSpecial::yes), "hi<|im_end|>\n");
}

TEST(Tokenizer, KnowsTheSpecialTokensOfTheDefaultModel) {
  const Tokenizer& tokenizer = *default_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 49152u);
  EXPECT_EQ(tokenizer.special_ids().bos, 1u);
  EXPECT_EQ(tokenizer.special_ids().eos, 2u);
  EXPECT_EQ(tokenizer.special_ids().eot, 2u);
  EXPECT_EQ(tokenizer.end_ids(), (std::vector<TokenId>{0, 2}));
  EXPECT_EQ(tokenizer.find_token("<|im_start|>"), 1u);
  EXPECT_EQ(tokenizer.find_token("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(504));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

TEST(Tokenizer, TokenBytesAreExact) {
  const Tokenizer& tokenizer = *default_tokenizer();
  EXPECT_EQ(tokenizer.token_bytes(3575), " capital");
  EXPECT_EQ(tokenizer.token_bytes(2), "<|im_end|>");
  EXPECT_EQ(tokenizer.token_bytes(1 << 30), "");
  std::string joined;
  const std::string text = "\xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x91\xA9";
  const auto ids = tokenizer.encode(text).value();
  for (const TokenId id : ids) joined += tokenizer.token_bytes(id);
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, AddsItsOwnTokensOnlyWhenAsked) {
  VocabularyParts parts = test::default_vocabulary().parts;
  parts.add_bos = true;
  parts.add_eos = true;
  const auto tokenizer = Tokenizer::from_vocabulary(parts).value();
  EXPECT_EQ(tokenizer->encode("Water boils at").value(), (std::vector<TokenId>{12615, 36411, 418}));
  const EncodeOptions with{.add_special = AddSpecial::yes};
  EXPECT_EQ(tokenizer->encode("Water boils at", with).value(), (std::vector<TokenId>{1, 12615, 36411, 418, 2}));
  EXPECT_EQ(tokenizer->encode_reference("Water boils at", with).value(),
            tokenizer->encode("Water boils at", with).value());
}

TEST(Tokenizer, TravelsAsJson) {
  const std::string json = default_tokenizer()->to_json().value();
  const auto copy = Tokenizer::from_json(json, default_tokenizer()->special_ids()).value();
  EXPECT_TRUE(copy->is_segmentable());
  EXPECT_EQ(copy->end_ids(), default_tokenizer()->end_ids());
  EXPECT_EQ(copy->vocab_size(), default_tokenizer()->vocab_size());
  penstock::Random random(test::seed());
  for (int i = 0; i < 200; ++i) {
    const std::string text = test::random_text(random, 20);
    ASSERT_EQ(copy->encode(text).value(), default_tokenizer()->encode(text).value()) << text;
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotKnowByName) {
  VocabularyParts parts = test::default_vocabulary().parts;
  parts.pre = "made-up";
  auto refused = Tokenizer::from_vocabulary(parts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_NE(refused.error().message.find("made-up"), std::string::npos);
  parts.pre = "";
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts.pre = "smollm";
  parts.model = "rwkv";
  refused = Tokenizer::from_vocabulary(parts);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("rwkv"), std::string::npos);
}

TEST(Tokenizer, RefusesBrokenVocabularies) {
  const VocabularyParts good = test::default_vocabulary().parts;
  VocabularyParts parts = good;
  parts.types.pop_back();
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.tokens[100] = parts.tokens[101];
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.merges[5] = "nospace";
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.merges[5] = "never seenbefore";
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.special.eos = 1 << 20;
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.tokens.clear();
  parts.types.clear();
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
  parts = good;
  parts.tokens[100] = "\xFF\xFE";
  EXPECT_FALSE(Tokenizer::from_vocabulary(parts));
}

TEST(Tokenizer, RefusesHostileJsonWithASentence) {
  const std::string deep(100'000, '[');
  const std::string bpe = R"({"version":"1.0","model":{"type":"BPE","vocab":)";
  const std::vector<std::string> hostile = {
      "",
      "{",
      "[]",
      "null",
      R"({"version":"1.0"})",
      deep,
      std::string("\xFF\xFF\0", 3),
      R"({"version":"1.0","model":{"type":"Nonsense"}})",
      bpe + R"({},"merges":[]}})",
      bpe +
          R"({"a":4294967295},"merges":[]},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false}})",
      bpe + R"({"a":0},"merges":["b c"]}})",
      bpe + R"({"a":0},"merges":[]}})",
      bpe +
          R"({"a":0},"merges":[]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(("},"behavior":"Isolated","invert":false}})",
      bpe +
          R"({"a":0},"merges":[],"dropout":0.5},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false}})"};
  for (const std::string& json : hostile) {
    const auto refused = Tokenizer::from_json(json);
    ASSERT_FALSE(refused) << json.substr(0, 200);
    EXPECT_FALSE(refused.error().message.empty());
    EXPECT_NE(refused.error().code, ErrorCode::internal) << refused.error().message;
  }
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const auto refused = default_tokenizer()->encode("ok \xC3");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

// SentencePiece models reach us as tokenizer.json: no fast path, but the same interface.
TEST(Tokenizer, TheWorkOfATextIsBounded) {
  const std::string run(100'000, 'x'), prose = "a few words that are known after the first time ";
  EncodeWork work;
  const EncodeOptions bounded{.work = &work};
  const std::uint64_t whole = work.steps_left;
  ASSERT_TRUE(default_tokenizer()->encode(run, bounded));
  EXPECT_EQ(whole - work.steps_left, run.size() * 17) << "n log n";
  std::uint64_t before = work.steps_left;
  ASSERT_TRUE(default_tokenizer()->encode(prose + prose, bounded));
  EXPECT_LE(before - work.steps_left, 6 * prose.size());
  before = work.steps_left;
  ASSERT_TRUE(default_tokenizer()->encode(prose, bounded));
  EXPECT_EQ(work.steps_left, before) << "known words cost nothing";
  work.steps_left = run.size() * 17 - 1;
  const auto refused = default_tokenizer()->encode(run, bounded);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_FALSE(default_tokenizer()->encode("yx", bounded)) << "nothing is left";
  EXPECT_TRUE(default_tokenizer()->encode(run));
}

TEST(Tokenizer, ReadsSentencePieceJson) {
  const std::string json =
      R"({"version":"1.0","added_tokens":[{"id":0,"content":"<s>","single_word":false,"lstrip":false,
    "rstrip":false,"normalized":false,"special":true}],
    "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
      {"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
      {"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],
      "special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
    "decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
      {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
    "model":{"type":"BPE","unk_token":null,"fuse_unk":false,"byte_fallback":true,
      "vocab":{"<s>":0,"▁":1,"a":2,"▁a":3,"<0xC3>":4,"<0xA9>":5},"merges":["▁ a"]}})";
  const auto tokenizer = Tokenizer::from_json(json).value();
  EXPECT_FALSE(tokenizer->is_segmentable());
  EXPECT_TRUE(tokenizer->strips_leading_space());
  const auto ids = tokenizer->encode("a a\xC3\xA9").value();
  EXPECT_EQ(ids, (std::vector<TokenId>{3, 3, 4, 5}));
  EXPECT_EQ(tokenizer->decode(ids, SkipSpecial::no), "a a\xC3\xA9");
  EXPECT_EQ(tokenizer->prefix_ids(), std::vector<TokenId>{0});
  EXPECT_EQ(tokenizer->encode("a", {.add_special = AddSpecial::yes}).value(), (std::vector<TokenId>{0, 3}));
}

}  // namespace
}  // namespace penstock::text
