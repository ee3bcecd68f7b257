// What the tests of common/text share: the default model's vocabulary, random text, seeds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>
#include "common/time/random.hpp"

#include "common/text/tokenizer.hpp"

namespace penstock::text::test {

/// The tokenizer.* metadata of a GGUF file; `parts` points into `data`.
struct GgufVocabulary {
  std::string data;
  VocabularyParts parts;
  std::string chat_template;
};

/// Throws with a sentence if the default model is not where PENSTOCK_MODEL or the cache folder says.
const GgufVocabulary& default_vocabulary();

/// The default model's vocabulary under the pre-tokenizer it names, or under another.
std::shared_ptr<const Tokenizer> default_tokenizer();
std::shared_ptr<const Tokenizer> tokenizer_with_pre(std::string_view pre);

/// A vocabulary in which any two of the characters that random_text() uses most merge, so that ids show every split.
std::shared_ptr<const Tokenizer> pairs_tokenizer(std::string_view pre);

/// Names a parametrised test after its pre-tokenizer.
std::string pre_name(const ::testing::TestParamInfo<const char*>& pre);

/// PENSTOCK_SEED, or a fixed number.
std::uint32_t seed();

/// Valid UTF-8 of many scripts, white space of all kinds, contractions, digits, and special tokens.
std::string random_text(penstock::Random& random, std::size_t pieces);

}  // namespace penstock::text::test
