#include "worker/model/loader.hpp"

#include <malloc.h>

#include <algorithm>
#include <system_error>

#include "common/base/id.hpp"
#include "common/text/block_hash.hpp"
#include "common/text/chat_template.hpp"
#include "worker/model/load_parts.hpp"

namespace penstock::worker {
namespace {

void add_blob(LoadedModel& model, std::string bytes, std::string& digest, std::uint64_t& size) {
  if (bytes.empty()) return;
  digest = content_digest(bytes);
  size = bytes.size();
  model.blobs.push_back({digest, std::move(bytes)});
}

}  // namespace

std::string content_digest(std::string_view bytes) {
  static const text::BlockHasher hasher = [] {
    text::BlockExtraKeys purpose;
    purpose.model_revision = "content digest 1";
    return text::BlockHasher(text::local_block_hash_key(), purpose);
  }();
  return to_string(hasher.with_media(hasher.root(), bytes));
}

Result<std::string> weights_revision(std::string_view settings, const TensorTable& table) {
  constexpr std::size_t sample_bytes = 4096;
  std::string seen = content_digest(settings);
  for (const auto& [name, tensor] : table.tensors()) {
    const std::string_view bytes = base::as_text(tensor.bytes);
    const std::size_t sample = std::min(bytes.size(), sample_bytes);
    PENSTOCK_TRY_VOID(table.load(tensor.bytes.first(sample)));
    PENSTOCK_TRY_VOID(table.load(tensor.bytes.last(sample)));
    seen += "\n" + name + " " + std::string(type_name(tensor)) + " " + std::to_string(tensor.rows) + " " +
            std::to_string(tensor.columns) + " " + content_digest(bytes.substr(0, sample)) + " " +
            content_digest(bytes.substr(bytes.size() - sample));
  }
  return content_digest(seen);
}

Result<void> finish_card(LoadedModel& model, const text::Tokenizer& tokenizer, std::string tokenizer_json,
                         std::string chat_template, const LoadOptions& options) {
  ModelSpec& spec = model.spec;
  protocol::ModelCard& card = model.card;
  if (tokenizer.vocab_size() > spec.vocabulary) {
    return make_error(ErrorCode::data_loss, "the tokenizer has " + std::to_string(tokenizer.vocab_size()) +
                                                " tokens, the model only " + std::to_string(spec.vocabulary));
  }
  if (!chat_template.empty()) {
    auto compiled = text::ChatTemplate::compile(chat_template);
    if (!compiled) return make_error(compiled.error().code, "the model's chat template: " + compiled.error().message);
  }
  for (const TokenId id : tokenizer.end_ids()) spec.eos_tokens.push_back(id);
  std::sort(spec.eos_tokens.begin(), spec.eos_tokens.end());
  spec.eos_tokens.erase(std::unique(spec.eos_tokens.begin(), spec.eos_tokens.end()), spec.eos_tokens.end());
  PENSTOCK_TRY_VOID(validate(spec));
  if (options.context_tokens_max > 0) spec.context_tokens = std::min(spec.context_tokens, options.context_tokens_max);

  card.name = options.served_name;
  card.architecture = spec.architecture;
  card.context_tokens = spec.context_tokens;
  card.vocabulary_size = spec.vocabulary;
  card.eos_tokens = spec.eos_tokens;
  const auto& prefix = tokenizer.prefix_ids();
  card.add_bos = card.bos_token && std::find(prefix.begin(), prefix.end(), *card.bos_token) != prefix.end();
  add_blob(model, std::move(tokenizer_json), card.tokenizer_digest, card.tokenizer_bytes);
  add_blob(model, std::move(chat_template), card.chat_template_digest, card.chat_template_bytes);
  return {};
}

namespace {

/// The GGUF file of a folder that holds one and no checkpoint, as a ModelCache or a volume does; else the path itself.
Result<std::filesystem::path> file_or_folder(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure) || std::filesystem::exists(path / "config.json", failure)) {
    return path;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, failure)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  if (files.size() > 1) {
    return make_error(ErrorCode::invalid_argument, path.string() + " has " + std::to_string(files.size()) +
                                                       " GGUF files and no config.json: name one");
  }
  return files.empty() ? path : files.front();
}

}  // namespace

Result<LoadedModel> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  std::error_code failure;
  LoadOptions named = options;
  if (named.served_name.empty()) named.served_name = std::filesystem::absolute(path).stem().string();
  PENSTOCK_TRY(const std::filesystem::path found, file_or_folder(path));
  const bool is_folder = std::filesystem::is_directory(found, failure);
  auto model = is_folder ? load_folder(found, named) : load_gguf(found, named);
  if (!model) {
    const std::string& why = model.error().message;  // may name the file itself
    return make_error(model.error().code, why.starts_with(path.string()) ? why : path.string() + ": " + why);
  }
  // Building the tokenizer leaves much free heap behind.
  ::malloc_trim(0);
  return model;
}

}  // namespace penstock::worker
