// Text to token ids and back, for one model. Built from a tokenizer.json or from the vocabulary inside a GGUF file.
// A Tokenizer never changes after it is built: any number of threads may use one at once, so it is handed around as
// shared_ptr<const Tokenizer>. Its memory is bounded by the vocabulary plus a word cache of at most 8 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/types.hpp"

namespace penstock::text {

namespace detail {
struct TokenizerHandle;  // lives in the Rust crate
struct TokenizerHandleDeleter {
  void operator()(TokenizerHandle* handle) const noexcept;
};
}  // namespace detail

/// Whether the model's own beginning and end tokens are put around the text. Rendered chat templates hold theirs.
enum class AddSpecial : std::uint8_t { no, yes };

/// What happens to a special token that is spelled out in the text, such as "<|im_end|>".
enum class SpecialText : std::uint8_t {
  parse,    // becomes the special token: what completion APIs do, and what rendered chat templates need
  as_text,  // stays ordinary text: for content that must not be able to end its own turn
};

/// Whether decoding leaves out special tokens.
enum class SkipSpecial : std::uint8_t { no, yes };

/// What the texts of one caller may cost. A new word of n bytes takes n log2 n steps of about 70 ns, so a text that is
/// one long word takes far longer than prose of its length. The default is enough for 5 MiB that nobody has seen
/// before.
struct EncodeWork {
  std::uint64_t steps_left = 32'000'000;
};

struct EncodeOptions {
  AddSpecial add_special = AddSpecial::no;
  SpecialText special_text = SpecialText::parse;
  EncodeWork* work = nullptr;  // taken from; null: no bound
};

/// Special ids by role. What a tokenizer.json does not say, the model card does.
struct SpecialIds {
  std::optional<TokenId> bos;      // beginning of a sequence
  std::optional<TokenId> eos;      // end of a sequence
  std::optional<TokenId> eot;      // end of a chat turn
  std::optional<TokenId> unknown;  // for SPM vocabularies
  std::optional<TokenId> padding;

  friend bool operator==(const SpecialIds&, const SpecialIds&) = default;
};

/// The tokenizer.ggml.* metadata of a GGUF file. The views must outlive the call only.
struct VocabularyParts {
  std::string_view model;                // tokenizer.ggml.model: "gpt2"; others are refused by name
  std::string_view pre;                  // tokenizer.ggml.pre: gpt-2, smollm, llama-bpe, qwen2
  std::vector<std::string_view> tokens;  // in id order
  std::vector<std::int32_t> types;       // per token: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string_view> merges;  // "left right", best first
  std::vector<float> scores;             // SPM vocabularies only
  SpecialIds special;
  std::optional<bool> add_bos;  // absent: what the pre-tokenizer's family does
  std::optional<bool> add_eos;
};

class Tokenizer {
 public:
  /// Reads a Hugging Face tokenizer.json. Refuses, with a sentence, what it cannot decode byte for byte.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json, const SpecialIds& special = {});
  /// Builds the tokenizer of a GGUF vocabulary. Unknown model kinds and pre-tokenizers are refused by name.
  static Result<std::shared_ptr<const Tokenizer>> from_vocabulary(const VocabularyParts& parts);

  /// Errors: text that is not UTF-8 (invalid_argument), more work than allowed (resource_exhausted).
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The slow, plain path through the library, for tests that compare.
  Result<std::vector<TokenId>> encode_reference(std::string_view text, const EncodeOptions& options = {}) const;

  /// Bytes that are no UTF-8 become U+FFFD; ids outside the vocabulary too.
  std::string decode(std::span<const TokenId> ids, SkipSpecial skip) const;
  /// The exact bytes that a token stands for, empty outside the vocabulary. Valid as long as the Tokenizer.
  std::string_view token_bytes(TokenId id) const;
  /// The id whose vocabulary spelling this is, special tokens first.
  std::optional<TokenId> find_token(std::string_view spelling) const;

  /// One more than the greatest id.
  std::size_t vocab_size() const { return flags_.size(); }
  bool contains(TokenId id) const;
  bool is_special(TokenId id) const;
  /// True if the first text of a sequence loses one leading space when decoded (SPM vocabularies).
  bool strips_leading_space() const { return strips_leading_space_; }
  /// True if texts may be cut at safe boundaries and encoded in pieces; see PrefixTokenCache.
  bool is_segmentable() const { return segmentable_; }

  const SpecialIds& special_ids() const { return special_; }
  /// Every id after which a model says no more: eos, eot and the well-known end tokens of its vocabulary. Ascending.
  const std::vector<TokenId>& end_ids() const { return end_ids_; }

  /// A tokenizer.json that gives the same ids; special_ids() travel beside it.
  Result<std::string> to_json() const;

  /// For PrefixTokenCache: safe cuts of a text with a keyed 128-bit digest of each piece.
  struct Segment {
    std::uint64_t end = 0;  // byte offset one past the piece
    std::uint64_t digest_high = 0;
    std::uint64_t digest_low = 0;
  };
  Result<std::vector<Segment>> segments(std::string_view text, SpecialText special_text,
                                        std::span<const std::uint8_t, 32> key) const;
  /// Ids that AddSpecial::yes puts before and after.
  const std::vector<TokenId>& prefix_ids() const { return prefix_ids_; }
  const std::vector<TokenId>& suffix_ids() const { return suffix_ids_; }

 private:
  using Handle = std::unique_ptr<detail::TokenizerHandle, detail::TokenizerHandleDeleter>;
  explicit Tokenizer(Handle handle) : handle_(std::move(handle)) {}
  static Result<std::shared_ptr<const Tokenizer>> finish(Handle handle, const SpecialIds& special);
  Result<void> read_tables();
  void find_end_ids();

  Handle handle_;
  std::string bytes_;                   // of all tokens, one after another
  std::vector<std::uint32_t> offsets_;  // vocab_size() + 1 positions in bytes_
  std::vector<std::uint8_t> flags_;     // per id: bit 0 exists, bit 1 special
  SpecialIds special_;
  std::vector<TokenId> end_ids_, prefix_ids_, suffix_ids_;
  bool strips_leading_space_ = false;
  bool segmentable_ = false;
};

}  // namespace penstock::text
