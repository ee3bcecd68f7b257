// All that the router needs to speak text for one model: tokenizer, chat template, special tokens, lengths, defaults.
// Built once from a model card and its blobs, then shared by every request. Immutable, except for the token cache,
// which is safe to use from any thread and bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/text/chat_template.hpp"
#include "common/text/prefix_token_cache.hpp"
#include "common/text/tokenizer.hpp"
#include "router/core/output/formats.hpp"

namespace penstock::router {

struct ModelText {
  protocol::ModelCard card;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // shared with the decoders of running requests
  std::optional<text::ChatTemplate> chat_template;
  std::unique_ptr<text::PrefixTokenCache> token_cache;
  std::unordered_set<TokenId> end_tokens;
  std::vector<std::string> special_texts;     // spellings of special tokens, as they look inside JSON text
  OutputFormats formats;                      // of calls and thoughts
  std::unordered_set<TokenId> marker_tokens;  // special tokens that spell a marker of some format

  /// "" as the source: the model has no chat template.
  static Result<std::shared_ptr<const ModelText>> build(protocol::ModelCard card, std::string_view tokenizer_json,
                                                        std::string_view template_source,
                                                        text::PrefixTokenCache::Options cache,
                                                        const FormatChoice& formats = {});
};

/// Breaks special tokens that are spelled out in what people wrote, so that a message cannot end its own turn: after
/// the first character of each spelling comes `break_mark`, at which the rendered text is cut before it is tokenised.
/// Nothing if there are none, which is the rule, so that long texts are not copied.
std::optional<std::string> break_special_texts(const std::vector<std::string>& special_texts, std::string_view text);
/// A noncharacter of Unicode, which no text for interchange has.
inline constexpr std::string_view break_mark = "\xEF\xB7\x90";

}  // namespace penstock::router
