// A tokenizer for tests in which the id of a byte is its value, so that what a scripted worker sends reads as text.
// <|im_start|> is 256 and <|im_end|> is 257.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.hpp"

namespace penstock::test {

inline constexpr TokenId im_start = 256;
inline constexpr TokenId im_end = 257;
inline constexpr std::uint32_t byte_vocabulary_size = 258;

/// `more`: further special tokens, from id 258.
std::string byte_tokenizer_json(const std::vector<std::string>& more = {});
/// ChatML.
std::string_view chat_template_source();

}  // namespace penstock::test
