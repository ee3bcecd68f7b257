// Turns one stream of token ids into text as it arrives. Gives out whole characters only: the bytes of an unfinished
// one wait for the next token. All deltas and the flush together equal Tokenizer::decode of all ids.
// Owned by one request; not for two threads at once. Holds at most 3 waiting bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "common/base/types.hpp"
#include "common/text/tokenizer.hpp"

namespace penstock::text {

class IncrementalDecoder {
 public:
  /// `shown`: special tokens that are given out although others are skipped; null: none. Must outlive the decoder.
  IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, SkipSpecial skip,
                     const std::unordered_set<TokenId>* shown = nullptr);

  /// Says that the stream goes on after these ids (a prompt, or tokens already shown): their text is not given out,
  /// but a character that they began is finished by the next token.
  void prime(std::span<const TokenId> ids);

  /// Adds the text that this token completes to `out`. Costs as much as the token has bytes.
  void push(TokenId id, std::string& out);
  std::string push(TokenId id);

  /// Ends the stream: what still waits is not a character and becomes one U+FFFD.
  std::string flush();

 private:
  void append(std::string_view bytes, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;  // shared with the model's registry, which may replace it
  SkipSpecial skip_;
  const std::unordered_set<TokenId>* shown_;
  bool at_start_ = true;
  unsigned waiting_size_ = 0;
  char waiting_[4] = {};
};

/// Adds `bytes` to `out`, every maximal invalid part replaced by U+FFFD. Returns how many bytes at the end are a
/// well-formed beginning of one character; those are not added.
std::size_t append_valid_utf8(std::string_view bytes, std::string& out);

}  // namespace penstock::text
