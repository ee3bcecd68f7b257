#include <gtest/gtest.h>

#include "common/text/incremental_decoder.hpp"
#include "common/text/stop_matcher.hpp"
#include "tests/unit/common/text_support.hpp"

namespace penstock::text {
namespace {

using test::default_tokenizer;

std::string valid(std::string_view bytes) {
  std::string out;
  if (append_valid_utf8(bytes, out) > 0) out += "\xEF\xBF\xBD";
  return out;
}

TEST(IncrementalDecoder, DeltasAreWholeCharactersAndAddUpToDecode) {
  penstock::Random random(test::seed());
  for (int i = 0; i < 300; ++i) {
    auto ids = default_tokenizer()->encode(test::random_text(random, 20)).value();
    // Random ids put garbage between good text, as a model at high temperature does.
    for (int j = 0; j < i % 5; ++j)
      ids.insert(ids.begin() + static_cast<long>(random.below(ids.size() + 1)),
                 static_cast<TokenId>(random.below(49500)));
    for (const SkipSpecial skip : {SkipSpecial::no, SkipSpecial::yes}) {
      IncrementalDecoder decoder(default_tokenizer(), skip);
      std::string all;
      for (const TokenId id : ids) {
        const std::string delta = decoder.push(id);
        ASSERT_EQ(valid(delta), delta);
        all += delta;
      }
      all += decoder.flush();
      ASSERT_EQ(all, default_tokenizer()->decode(ids, skip)) << "seed " << test::seed();
    }
  }
}

TEST(IncrementalDecoder, HoldsBackAnUnfinishedCharacter) {
  const auto ids = default_tokenizer()->encode("\xF0\x9F\xAA\xBF").value();  // goose: several tokens
  ASSERT_GT(ids.size(), 1u);
  IncrementalDecoder decoder(default_tokenizer(), SkipSpecial::no);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids.back()), "\xF0\x9F\xAA\xBF");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(IncrementalDecoder, FlushGivesOneReplacementForAnUnfinishedCharacter) {
  const auto ids = default_tokenizer()->encode("\xF0\x9F\xAA\xBF").value();
  IncrementalDecoder decoder(default_tokenizer(), SkipSpecial::no);
  EXPECT_EQ(decoder.push(ids.front()), "");
  EXPECT_EQ(decoder.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(IncrementalDecoder, FinishesACharacterThatThePromptBegan) {
  const auto ids = default_tokenizer()->encode("x \xF0\x9F\xAA\xBF").value();
  IncrementalDecoder decoder(default_tokenizer(), SkipSpecial::no);
  decoder.prime(std::span(ids).first(ids.size() - 1));
  EXPECT_EQ(decoder.push(ids.back()), "\xF0\x9F\xAA\xBF");
}

TEST(Utf8, ReplacesMaximalInvalidParts) {
  EXPECT_EQ(valid("a\x80z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(valid("\xE4\xB8z"), "\xEF\xBF\xBDz");                            // one for a good beginning
  EXPECT_EQ(valid("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(valid("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // an overlong form
  EXPECT_EQ(valid("\xF5"), "\xEF\xBF\xBD");
  std::string out;
  EXPECT_EQ(append_valid_utf8("ok\xF0\x9F\x91", out), 3u);
  EXPECT_EQ(out, "ok");
}

struct Found {
  std::string text;
  bool stopped = false;
  std::size_t end = std::string::npos;  // byte after the stop string
};

/// The definition of StopMatcher, by looking at the whole text.
Found find_plainly(const std::string& text, const std::vector<std::string>& stops, IncludeStop include) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest == 0) continue;
    return {text.substr(0, include == IncludeStop::yes ? end : end - longest), true, end};
  }
  return {text};
}

std::string letters(penstock::Random& random, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + static_cast<int>(random.below(3)));
  return text;
}

TEST(StopMatcher, EqualsSearchingTheWholeTextHoweverItIsSplit) {
  penstock::Random random(test::seed());
  for (int round = 0; round < 5000; ++round) {
    const std::string text = letters(random, random.below(40));
    std::vector<std::string> stops;
    for (std::size_t i = random.below(5); i > 0; --i) stops.push_back(letters(random, random.below(6)));
    for (const IncludeStop include : {IncludeStop::no, IncludeStop::yes}) {
      const Found expected = find_plainly(text, stops, include);
      StopMatcher matcher(stops, include);
      std::string out;
      std::size_t at = 0, pushes = 0;
      while (at < text.size() && !matcher.stopped()) {
        const std::size_t size = random.below(4);
        matcher.push(text.substr(at, size), out);
        at = std::min(text.size(), at + size);
        ++pushes;
        ASSERT_TRUE(matcher.stopped() || at < expected.end);
      }
      if (!matcher.stopped()) matcher.flush(out);
      ASSERT_EQ(matcher.stopped(), expected.stopped) << text;
      ASSERT_EQ(out, expected.text) << "seed " << test::seed() << " text " << text;
      ASSERT_EQ(matcher.tokens(), pushes);
    }
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop) {
  StopMatcher matcher({"\n\nHuman:"}, IncludeStop::no);
  std::string out;
  EXPECT_FALSE(matcher.push("Hello\n", out));
  EXPECT_EQ(out, "Hello");
  EXPECT_EQ(matcher.held_bytes(), 1u);
  EXPECT_FALSE(matcher.push("World", out));
  EXPECT_EQ(out, "Hello\nWorld");
  EXPECT_FALSE(matcher.push("\n\nHum", out));
  EXPECT_EQ(out, "Hello\nWorld");
  EXPECT_TRUE(matcher.push("an: more", out));
  EXPECT_EQ(out, "Hello\nWorld");
  EXPECT_EQ(matcher.tokens(), 4u);
  EXPECT_EQ(matcher.stop_index(), 0u);
  EXPECT_TRUE(matcher.push("ignored", out));
  EXPECT_EQ(matcher.tokens(), 4u);
}

TEST(StopMatcher, ReportsWhichStringAndCanIncludeIt) {
  StopMatcher matcher({"", "END", "XEND"}, IncludeStop::yes);
  std::string out;
  EXPECT_TRUE(matcher.push("fooXENDbar", out));
  EXPECT_EQ(matcher.stop_index(), 2u);
  EXPECT_EQ(out, "fooXEND");
}

TEST(StopMatcher, WithoutStopsHoldsNothing) {
  StopMatcher matcher({}, IncludeStop::no);
  std::string out;
  EXPECT_FALSE(matcher.push("anything", out));
  EXPECT_EQ(out, "anything");
}

}  // namespace
}  // namespace penstock::text
