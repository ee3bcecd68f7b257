#include <algorithm>
#include <limits>
#include <utility>

#include "worker/model/gguf.hpp"
#include "worker/model/lazy_file.hpp"
#include "worker/model/load_parts.hpp"
#include "worker/model/weight_builder.hpp"

namespace penstock::worker {
namespace {

// A vocabulary of 256,000 tokens with merges takes about 12 MB.
constexpr std::size_t header_bytes_first = std::size_t{16} << 20;
constexpr std::size_t header_bytes_max = std::size_t{256} << 20;

Result<std::optional<TokenId>> find_token_id(const GgufFile& file, std::string_view key, std::size_t tokens) {
  PENSTOCK_TRY(const auto value, file.find_uint(key));
  if (!value) return std::optional<TokenId>();
  if (*value >= tokens) {
    return make_error(ErrorCode::data_loss, "GGUF: metadata " + std::string(key) + " is " + std::to_string(*value) +
                                                ", outside the vocabulary of " + std::to_string(tokens));
  }
  return std::optional<TokenId>(static_cast<TokenId>(*value));
}

Result<text::VocabularyParts> read_vocabulary(const GgufFile& file) {
  text::VocabularyParts parts;
  PENSTOCK_TRY(const auto model, file.find_text("tokenizer.ggml.model"));
  PENSTOCK_TRY(const auto pre, file.find_text("tokenizer.ggml.pre"));
  if (!model) return make_error(ErrorCode::data_loss, "GGUF: metadata tokenizer.ggml.model is missing");
  parts.model = *model;
  parts.pre = pre.value_or("");
  PENSTOCK_TRY(parts.tokens, file.texts("tokenizer.ggml.tokens"));
  PENSTOCK_TRY(parts.types, file.int32s("tokenizer.ggml.token_type"));
  PENSTOCK_TRY(parts.merges, file.texts("tokenizer.ggml.merges"));
  PENSTOCK_TRY(parts.scores, file.floats("tokenizer.ggml.scores"));
  const std::size_t count = parts.tokens.size();
  PENSTOCK_TRY(parts.special.bos, find_token_id(file, "tokenizer.ggml.bos_token_id", count));
  PENSTOCK_TRY(parts.special.eos, find_token_id(file, "tokenizer.ggml.eos_token_id", count));
  PENSTOCK_TRY(parts.special.eot, find_token_id(file, "tokenizer.ggml.eot_token_id", count));
  PENSTOCK_TRY(parts.special.unknown, find_token_id(file, "tokenizer.ggml.unknown_token_id", count));
  PENSTOCK_TRY(parts.special.padding, find_token_id(file, "tokenizer.ggml.padding_token_id", count));
  PENSTOCK_TRY(parts.add_bos, file.find_bool("tokenizer.ggml.add_bos_token"));
  PENSTOCK_TRY(parts.add_eos, file.find_bool("tokenizer.ggml.add_eos_token"));
  return parts;
}

Result<void> read_texts(const GgufFile& file, LoadedModel& model, const LoadOptions& options) {
  PENSTOCK_TRY(const text::VocabularyParts parts, read_vocabulary(file));
  PENSTOCK_TRY(const auto tokenizer, text::Tokenizer::from_vocabulary(parts));
  PENSTOCK_TRY(std::string tokenizer_json, tokenizer->to_json());
  PENSTOCK_TRY(const auto chat_template, file.find_text("tokenizer.chat_template"));
  protocol::ModelCard& card = model.card;
  card.bos_token = parts.special.bos;
  if (parts.special.bos) card.bos_text = parts.tokens[*parts.special.bos];
  if (parts.special.eos) {
    card.eos_text = parts.tokens[*parts.special.eos];
    model.spec.eos_tokens.push_back(*parts.special.eos);
  }
  if (parts.special.eot) model.spec.eos_tokens.push_back(*parts.special.eot);
  return finish_card(model, *tokenizer, std::move(tokenizer_json), std::string(chat_template.value_or("")), options);
}

}  // namespace

/// A header does not say how long it is. What is not loaded reads as zeros, so a result counts only if it comes from
/// loaded bytes alone; otherwise more are loaded and it is read again.
Result<GgufFile> read_gguf_structure(const LazyFile& file) {
  const base::BytesView bytes = file.bytes();
  std::size_t loaded = std::min(bytes.size(), header_bytes_first);
  while (true) {
    PENSTOCK_TRY_VOID(file.load(bytes.first(loaded)));
    auto parsed = GgufFile::parse(bytes);
    const bool is_final = loaded == bytes.size() || (parsed && parsed->header().size() <= loaded);
    if (is_final || loaded >= header_bytes_max) return parsed;
    loaded = std::min({bytes.size(), loaded * 4, header_bytes_max});
  }
}

Result<LoadedModel> load_gguf(const std::filesystem::path& path, const LoadOptions& options) {
  const std::string extension = path.extension().string();
  if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".pkl") {
    return make_error(ErrorCode::unsupported, "pickle files can run code and are not read; use GGUF or safetensors");
  }
  PENSTOCK_TRY(const LazyFile opened, LazyFile::open(path));
  PENSTOCK_TRY(const GgufFile file, read_gguf_structure(opened));
  LoadedModel model;
  PENSTOCK_TRY(model.spec, spec_from_gguf(file));
  PENSTOCK_TRY(TensorTable tensors, file.tensors());
  tensors.add_file(opened);
  PENSTOCK_TRY(model.card.revision, weights_revision(base::as_text(file.header()), tensors));
  PENSTOCK_TRY_VOID(read_texts(file, model, options));
  tensors.drop("rope_freqs.weight");  // part of the spec already
  PENSTOCK_TRY(model.weights, build_weights(model.spec, gguf_names(), tensors, options));
  return model;
}

}  // namespace penstock::worker
