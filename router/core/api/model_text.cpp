#include "router/core/api/model_text.hpp"

#include <algorithm>
#include <array>

#include "common/json/writer.hpp"

namespace penstock::router {
namespace {

std::size_t first_character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t count = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(count, text.size());
}

// Spellings of one character can't be broken; they are left out.
std::vector<std::string> special_texts_of(const text::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.contains(id) || !tokenizer.is_special(id)) continue;
    std::string escaped;
    json::append_escaped(escaped, tokenizer.token_bytes(id));
    if (!escaped.empty() && escaped.size() > first_character_bytes(escaped)) texts.push_back(std::move(escaped));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::string template_constants(const protocol::ModelCard& card) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object();
  writer.field("bos_token", card.bos_text);
  writer.field("eos_token", card.eos_text);
  writer.end_object();
  return out;
}

}  // namespace

Result<std::shared_ptr<const ModelText>> ModelText::build(protocol::ModelCard card, std::string_view tokenizer_json,
                                                          std::string_view template_source,
                                                          text::PrefixTokenCache::Options cache,
                                                          const FormatChoice& formats) {
  auto model = std::make_shared<ModelText>();
  text::SpecialIds special;
  special.bos = card.bos_token;
  if (!card.eos_tokens.empty()) special.eos = card.eos_tokens.front();
  PENSTOCK_TRY(model->tokenizer, text::Tokenizer::from_json(tokenizer_json, special));
  if (!template_source.empty()) {
    PENSTOCK_TRY(model->chat_template, text::ChatTemplate::compile(template_source, template_constants(card)));
  }
  model->token_cache = std::make_unique<text::PrefixTokenCache>(model->tokenizer, cache);
  model->end_tokens.insert(card.eos_tokens.begin(), card.eos_tokens.end());
  model->special_texts = special_texts_of(*model->tokenizer);
  model->formats = choose_formats(template_source, formats);
  for (const std::string_view marker : marker_spellings()) {
    const auto id = model->tokenizer->find_token(marker);
    if (id && model->tokenizer->is_special(*id)) model->marker_tokens.insert(*id);
  }
  model->card = std::move(card);
  return std::shared_ptr<const ModelText>(std::move(model));
}

std::optional<std::string> break_special_texts(const std::vector<std::string>& special_texts, std::string_view all) {
  std::array<bool, 256> starts{};
  for (const auto& special : special_texts) starts[static_cast<unsigned char>(special.front())] = true;
  std::vector<std::size_t> cuts;
  // Most vocabularies begin every special text alike ('<'): the library's search for one byte is many times faster.
  const bool begin_alike = std::count(starts.begin(), starts.end(), true) == 1;
  const auto next = [&](std::size_t at) {
    if (begin_alike) return std::min(all.find(special_texts.front().front(), at), all.size());
    while (at < all.size() && !starts[static_cast<unsigned char>(all[at])]) ++at;
    return at;
  };
  for (std::size_t at = next(0); at < all.size(); at = next(at + 1)) {
    for (const auto& special : special_texts) {
      if (all.compare(at, special.size(), special) != 0) continue;
      cuts.push_back(at + first_character_bytes(special));
      break;
    }
  }
  if (cuts.empty()) return std::nullopt;
  std::string out;
  out.reserve(all.size() + cuts.size() * break_mark.size());
  std::size_t begin = 0;
  for (std::size_t cut : cuts) {
    out += all.substr(begin, cut - begin);
    out += break_mark;
    begin = cut;
  }
  out += all.substr(begin);
  return out;
}

}  // namespace penstock::router
