// A Hugging Face folder: config.json, model.safetensors or its shards, tokenizer.json, and optional companions.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/json/json.hpp"
#include "worker/model/lazy_file.hpp"
#include "worker/model/load_parts.hpp"
#include "worker/model/safetensors.hpp"
#include "worker/model/weight_builder.hpp"

namespace penstock::worker {
namespace {

constexpr std::size_t small_file_bytes_max = 4u << 20;
constexpr std::size_t tokenizer_bytes_max = 64u << 20;
constexpr std::size_t index_bytes_max = 64u << 20;
constexpr std::size_t shards_max = 4096;

bool file_exists(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

/// An optional companion; absent: an empty object.
Result<json::Value> read_companion(const std::filesystem::path& folder, const char* name) {
  const std::filesystem::path path = folder / name;
  if (!file_exists(path)) return json::Value(json::Object());
  PENSTOCK_TRY(const std::string text, read_text_file(path, small_file_bytes_max));
  auto value = json::parse(text);
  if (!value) return make_error(ErrorCode::invalid_argument, std::string(name) + ": " + value.error().message);
  if (!value->is_object()) return make_error(ErrorCode::invalid_argument, std::string(name) + ": is no JSON object");
  return std::move(*value);
}

/// A header that claims too much is left to read_safetensors() to refuse.
Result<void> load_safetensors_header(const LazyFile& file) {
  const base::BytesView bytes = file.bytes();
  PENSTOCK_TRY_VOID(file.load(bytes.first(std::min<std::size_t>(bytes.size(), 8))));
  base::ByteReader reader(bytes);
  const auto claimed = reader.read<std::uint64_t>();
  const std::uint64_t header = std::min<std::uint64_t>(claimed, SafetensorsLimits().header_bytes_max);
  return file.load(bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(8 + header, bytes.size()))));
}

/// Adds the tensors of one file. `files` never moves, since tables point at what it holds.
Result<void> open_file(const std::filesystem::path& path, std::deque<LazyFile>& files, TensorTable& table) {
  PENSTOCK_TRY(LazyFile opened, LazyFile::open(path));
  const LazyFile& file = files.emplace_back(std::move(opened));
  PENSTOCK_TRY_VOID(load_safetensors_header(file));
  auto read = read_safetensors(file.bytes(), table);
  if (!read) return make_error(read.error().code, path.filename().string() + ": " + read.error().message);
  return {};
}

/// Every tensor of the index is in the shard that it names, and no shard holds others.
Result<void> check_index(const std::map<std::string, std::string>& index,
                         const std::map<std::string, std::string>& found) {
  for (const auto& [name, shard] : index) {
    const auto at = found.find(name);
    if (at == found.end() || at->second != shard) {
      return make_error(ErrorCode::data_loss, "tensor " + name + " is not in " + shard + " as the index says");
    }
  }
  for (const auto& [name, shard] : found) {
    if (!index.contains(name)) {
      return make_error(ErrorCode::data_loss, "tensor " + name + " of " + shard + " is not in the index");
    }
  }
  return {};
}

Result<TensorTable> read_tensors(const std::filesystem::path& folder, std::deque<LazyFile>& files) {
  TensorTable table;
  const std::filesystem::path index_path = folder / "model.safetensors.index.json";
  if (!file_exists(index_path)) {
    const std::filesystem::path single = folder / "model.safetensors";
    if (!file_exists(single)) {
      const char* hint =
          file_exists(folder / "pytorch_model.bin") ? "; pickle files (pytorch_model.bin) are not read" : "";
      return make_error(ErrorCode::not_found, std::string("the folder has no model.safetensors") + hint);
    }
    PENSTOCK_TRY_VOID(open_file(single, files, table));
    return table;
  }
  PENSTOCK_TRY(const std::string text, read_text_file(index_path, index_bytes_max));
  PENSTOCK_TRY(const auto index, read_safetensors_index(text));
  std::set<std::string> shards;
  for (const auto& [name, shard] : index) shards.insert(shard);
  if (shards.empty() || shards.size() > shards_max) {
    return make_error(ErrorCode::data_loss, "the index names " + std::to_string(shards.size()) + " files");
  }
  std::map<std::string, std::string> found;
  for (const std::string& shard : shards) {
    TensorTable part;
    PENSTOCK_TRY_VOID(open_file(folder / shard, files, part));
    for (const auto& [name, tensor] : part.tensors()) {
      PENSTOCK_TRY_VOID(table.add(name, tensor));
      found.emplace(name, shard);
    }
  }
  PENSTOCK_TRY_VOID(check_index(index, found));
  return table;
}

Result<void> add_token_ids(const json::Value& file, ModelSpec& spec) {
  const json::Value* value = file.get_object().if_contains("eos_token_id");
  if (value == nullptr || value->is_null()) return {};
  const json::Path path = json::Path().field("eos_token_id");
  const auto add = [&](const json::Value& one) -> Result<void> {
    PENSTOCK_TRY(const std::uint64_t id, json::as<std::uint64_t>(one, path));
    if (id >= spec.vocabulary) {
      return make_error(ErrorCode::data_loss, "eos_token_id " + std::to_string(id) + " is outside the vocabulary");
    }
    spec.eos_tokens.push_back(static_cast<TokenId>(id));
    return {};
  };
  if (!value->is_array()) return add(*value);
  for (const json::Value& one : value->get_array()) PENSTOCK_TRY_VOID(add(one));
  return {};
}

/// A special token of tokenizer_config.json: a string, or an object with its content.
std::string special_text(const json::Value& config, std::string_view key) {
  const json::Value* value = config.get_object().if_contains(key);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string().data(), value->get_string().size());
}

/// chat_template.jinja, else the template in tokenizer_config.json, which may be a list of named ones.
Result<std::string> read_template(const std::filesystem::path& folder, const json::Value& config) {
  if (file_exists(folder / "chat_template.jinja")) {
    return read_text_file(folder / "chat_template.jinja", small_file_bytes_max);
  }
  const json::Value* value = config.get_object().if_contains("chat_template");
  if (value != nullptr && value->is_array()) {
    const json::Value* chosen = nullptr;
    for (const json::Value& entry : value->get_array()) {
      if (entry.is_object() && special_text(entry, "name") == "default")
        chosen = entry.get_object().if_contains("template");
    }
    value = chosen;
  }
  if (value == nullptr || !value->is_string()) return std::string();
  return std::string(value->get_string().data(), value->get_string().size());
}

Result<void> read_generation_defaults(const json::Value& file, protocol::ModelCard& card) {
  const json::Object& object = file.get_object();
  const json::Path root;
  PENSTOCK_TRY(const auto temperature, json::optional<double>(object, "temperature", root, {0, 100}));
  PENSTOCK_TRY(const auto top_p, json::optional<double>(object, "top_p", root, {0, 1}));
  PENSTOCK_TRY(const auto top_k, json::optional<std::uint64_t>(object, "top_k", root, {0, 1u << 30}));
  if (temperature) card.default_temperature = static_cast<float>(*temperature);
  if (top_p && *top_p > 0) card.default_top_p = static_cast<float>(*top_p);
  if (top_k) card.default_top_k = static_cast<std::uint32_t>(*top_k);
  return {};
}

Result<void> read_texts(const std::filesystem::path& folder, const std::string& config_text, LoadedModel& model,
                        const LoadOptions& options) {
  PENSTOCK_TRY(const json::Value config, json::parse(config_text));
  PENSTOCK_TRY(const json::Value generation, read_companion(folder, "generation_config.json"));
  PENSTOCK_TRY(const json::Value tokenizer_config, read_companion(folder, "tokenizer_config.json"));
  PENSTOCK_TRY_VOID(add_token_ids(config, model.spec));
  PENSTOCK_TRY_VOID(add_token_ids(generation, model.spec));
  PENSTOCK_TRY_VOID(read_generation_defaults(generation, model.card));
  PENSTOCK_TRY(std::string tokenizer_json, read_text_file(folder / "tokenizer.json", tokenizer_bytes_max));
  auto tokenizer = text::Tokenizer::from_json(tokenizer_json);
  if (!tokenizer) return make_error(tokenizer.error().code, "tokenizer.json: " + tokenizer.error().message);
  protocol::ModelCard& card = model.card;
  card.bos_text = special_text(tokenizer_config, "bos_token");
  card.eos_text = special_text(tokenizer_config, "eos_token");
  if (!card.bos_text.empty()) card.bos_token = (*tokenizer)->find_token(card.bos_text);
  if (!card.eos_text.empty()) {
    if (const auto eos = (*tokenizer)->find_token(card.eos_text)) model.spec.eos_tokens.push_back(*eos);
  }
  PENSTOCK_TRY(std::string chat_template, read_template(folder, tokenizer_config));
  return finish_card(model, **tokenizer, std::move(tokenizer_json), std::move(chat_template), options);
}

}  // namespace

Result<LoadedModel> load_folder(const std::filesystem::path& path, const LoadOptions& options) {
  PENSTOCK_TRY(const std::string config, read_text_file(path / "config.json", small_file_bytes_max));
  LoadedModel model;
  PENSTOCK_TRY(model.spec, spec_from_config(config));
  std::deque<LazyFile> files;
  PENSTOCK_TRY(TensorTable tensors, read_tensors(path, files));
  for (const LazyFile& file : files) tensors.add_file(file);
  PENSTOCK_TRY(model.card.revision, weights_revision(config, tensors));
  PENSTOCK_TRY_VOID(read_texts(path, config, model, options));
  // Some checkpoints store a tied head once more, and old ones the rotary frequencies.
  if (model.spec.tied_embeddings) tensors.drop("lm_head.weight");
  for (std::uint32_t layer = 0; layer < model.spec.layers; ++layer) {
    tensors.drop("model.layers." + std::to_string(layer) + ".self_attn.rotary_emb.inv_freq");
  }
  PENSTOCK_TRY(model.weights, build_weights(model.spec, hugging_face_names(model.spec.architecture), tensors, options));
  return model;
}

}  // namespace penstock::worker
