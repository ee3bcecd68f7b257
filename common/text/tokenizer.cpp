#include "common/text/tokenizer.hpp"

#include <algorithm>
#include <array>

#include "common/text/ffi.hpp"
#include "common/text/incremental_decoder.hpp"

namespace penstock::text {

namespace {

constexpr std::uint8_t flag_exists = 1, flag_special = 2;
constexpr std::uint32_t fact_segmentable = 1, fact_strips_leading_space = 2;

// Spellings that end a turn or a text in the models we know. Only special tokens of the vocabulary count.
constexpr std::array<std::string_view, 6> turn_ends = {"<|im_end|>",    "<|eot_id|>", "<|end|>",
                                                       "<end_of_turn>", "<|eom_id|>", "<|end_of_turn|>"};
constexpr std::array<std::string_view, 2> text_ends = {"<|endoftext|>", "<|end_of_text|>"};

std::vector<detail::Slice> slices(const std::vector<std::string_view>& texts) {
  std::vector<detail::Slice> result;
  result.reserve(texts.size());
  for (std::string_view text : texts) result.push_back(detail::slice(text));
  return result;
}

// Llama 3's family begins every text with its bos token; the others here do not.
bool adds_bos_by_default(std::string_view pre) {
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
}

std::uint32_t encode_bits(const EncodeOptions& options) {
  std::uint32_t bits = 0;
  if (options.special_text == SpecialText::as_text) bits |= detail::encode_as_text;
  if (options.add_special == AddSpecial::yes) bits |= detail::encode_add_special;
  return bits;
}

Result<std::vector<TokenId>> encode_with(const detail::TokenizerHandle* handle, std::string_view text,
                                         std::uint32_t bits, EncodeWork* work) {
  EncodeWork unbounded{UINT64_MAX};
  if (work == nullptr) work = &unbounded;
  detail::Receiver received;
  const auto status =
      detail::penstock_text_encode(handle, detail::slice(text), bits, &work->steps_left, received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return received.take<TokenId>();
}

}  // namespace

void detail::TokenizerHandleDeleter::operator()(TokenizerHandle* handle) const noexcept {
  penstock_text_tokenizer_free(handle);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json, const SpecialIds& special) {
  detail::Receiver received;
  detail::TokenizerHandle* raw = nullptr;
  const auto status = detail::penstock_text_tokenizer_from_json(detail::slice(json), &raw, received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return finish(Handle(raw), special);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_vocabulary(const VocabularyParts& parts) {
  const auto tokens = slices(parts.tokens), merges = slices(parts.merges);
  const bool add_bos = parts.add_bos.value_or(adds_bos_by_default(parts.pre));
  const bool add_eos = parts.add_eos.value_or(false);
  if (add_bos && !parts.special.bos) {
    return make_error(ErrorCode::invalid_argument, "the vocabulary adds a bos token but does not say which");
  }
  if (add_eos && !parts.special.eos) {
    return make_error(ErrorCode::invalid_argument, "the vocabulary adds an eos token but does not say which");
  }
  const detail::RawParts raw_parts{
      .model = detail::slice(parts.model),
      .pre = detail::slice(parts.pre),
      .tokens = tokens.data(),
      .token_count = tokens.size(),
      .types = parts.types.data(),
      .type_count = parts.types.size(),
      .merges = merges.data(),
      .merge_count = merges.size(),
      .prefix = add_bos ? std::int64_t{*parts.special.bos} : -1,
      .suffix = add_eos ? std::int64_t{*parts.special.eos} : -1,
  };
  detail::Receiver received;
  detail::TokenizerHandle* raw = nullptr;
  const auto status = detail::penstock_text_tokenizer_from_vocabulary(&raw_parts, &raw, received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return finish(Handle(raw), parts.special);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::finish(Handle handle, const SpecialIds& special) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(handle)));
  PENSTOCK_TRY_VOID(tokenizer->read_tables());
  for (const auto& id : {special.bos, special.eos, special.eot, special.unknown, special.padding}) {
    if (id && !tokenizer->contains(*id)) {
      return make_error(ErrorCode::invalid_argument,
                        "special token " + std::to_string(*id) + " is outside the vocabulary");
    }
  }
  tokenizer->special_ = special;
  tokenizer->find_end_ids();
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Result<void> Tokenizer::read_tables() {
  detail::Receiver bytes, offsets, token_flags, prefix, suffix, error;
  std::uint32_t facts = 0;
  const auto status = detail::penstock_text_tables(handle_.get(), bytes.sink(), offsets.sink(), token_flags.sink(),
                                                   prefix.sink(), suffix.sink(), &facts, error.sink());
  if (status != detail::Status::ok) return error.error(status);
  bytes_ = bytes.take_text();
  offsets_ = offsets.take<std::uint32_t>();
  flags_ = token_flags.take<std::uint8_t>();
  prefix_ids_ = prefix.take<TokenId>();
  suffix_ids_ = suffix.take<TokenId>();
  segmentable_ = (facts & fact_segmentable) != 0;
  strips_leading_space_ = (facts & fact_strips_leading_space) != 0;
  return {};
}

void Tokenizer::find_end_ids() {
  const auto special_with = [this](std::string_view spelling) {
    const auto id = find_token(spelling);
    return id && is_special(*id) ? id : std::nullopt;
  };
  if (special_.eos) end_ids_.push_back(*special_.eos);
  if (special_.eot) end_ids_.push_back(*special_.eot);
  for (std::string_view spelling : turn_ends) {
    const auto id = special_with(spelling);
    if (!id) continue;
    if (!special_.eot) special_.eot = id;
    end_ids_.push_back(*id);
  }
  for (std::string_view spelling : text_ends) {
    if (const auto id = special_with(spelling)) end_ids_.push_back(*id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode_with(handle_.get(), text, encode_bits(options), options.work);
}

Result<std::vector<TokenId>> Tokenizer::encode_reference(std::string_view text, const EncodeOptions& options) const {
  return encode_with(handle_.get(), text, encode_bits(options) | detail::encode_reference, nullptr);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SkipSpecial skip) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!contains(id)) {
      bytes += '\xff';  // No byte of UTF-8, so it becomes U+FFFD below.
    } else if (skip == SkipSpecial::no || !is_special(id)) {
      bytes += token_bytes(id);
    }
  }
  std::string_view view = bytes;
  if (strips_leading_space_ && view.starts_with(' ')) view.remove_prefix(1);
  std::string text;
  text.reserve(view.size());
  if (append_valid_utf8(view, text) > 0) text += "\xEF\xBF\xBD";
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id >= flags_.size()) return {};
  return std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

std::optional<TokenId> Tokenizer::find_token(std::string_view spelling) const {
  const std::int64_t id = detail::penstock_text_find_token(handle_.get(), detail::slice(spelling));
  if (id < 0) return std::nullopt;
  return static_cast<TokenId>(id);
}

bool Tokenizer::contains(TokenId id) const {
  return id < flags_.size() && (flags_[id] & flag_exists) != 0;
}
bool Tokenizer::is_special(TokenId id) const {
  return id < flags_.size() && (flags_[id] & flag_special) != 0;
}

Result<std::string> Tokenizer::to_json() const {
  detail::Receiver received;
  const auto status = detail::penstock_text_to_json(handle_.get(), received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return received.take_text();
}

Result<std::vector<Tokenizer::Segment>> Tokenizer::segments(std::string_view text, SpecialText special_text,
                                                            std::span<const std::uint8_t, 32> key) const {
  // Pieces read as text have other ids than parsed ones, so they get other digests.
  std::array<std::uint8_t, 32> mode_key;
  std::copy(key.begin(), key.end(), mode_key.begin());
  mode_key[0] ^= static_cast<std::uint8_t>(special_text);
  detail::Receiver received;
  const auto status =
      detail::penstock_text_pieces(handle_.get(), detail::slice(text), encode_bits({.special_text = special_text}),
                                   mode_key.data(), received.sink());
  if (status != detail::Status::ok) return received.error(status);
  return received.take<Segment>();
}

}  // namespace penstock::text
