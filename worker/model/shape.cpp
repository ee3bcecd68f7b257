#include "worker/model/shape.hpp"

#include <string>

#include "worker/model/config_json.hpp"
#include "worker/model/expert_config.hpp"
#include "worker/model/gguf.hpp"
#include "worker/model/lazy_file.hpp"
#include "worker/model/load_parts.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/quantisation.hpp"

namespace penstock::worker {

using config_json::Config;
using config_json::refuse;
using plan::ModelShape;
using plan::WeightFormat;

namespace {

constexpr std::size_t config_bytes_max = 4u << 20;

struct ShapeFamily {
  std::string_view class_name;
  bool qkv_bias;
  bool qk_norm;
  std::uint32_t head_dim;  // where the file doesn't say; 0: hidden / heads
};
constexpr ShapeFamily families[] = {
    {"LlamaForCausalLM", false, false, 0},   {"MistralForCausalLM", false, false, 0},
    {"Qwen2ForCausalLM", true, false, 0},    {"Qwen3ForCausalLM", false, true, 128},
    {"MixtralForCausalLM", false, false, 0}, {"Qwen3MoeForCausalLM", false, true, 128},
};

Result<const ShapeFamily*> read_family(const Config& config) {
  PENSTOCK_TRY(const json::Array* classes, json::required<const json::Array*>(config.object(), "architectures", {}));
  if (classes->size() != 1 || !classes->front().is_string()) return refuse("architectures must name one class");
  const std::string_view name(classes->front().get_string().data(), classes->front().get_string().size());
  for (const ShapeFamily& family : families) {
    if (family.class_name == name) return &family;
  }
  return refuse("architecture \"" + std::string(name) + "\" is not supported");
}

Result<WeightFormat> read_format(const Config& config) {
  if (config.is_set("quantization_config")) {
    PENSTOCK_TRY(const json::Object* quantised,
                 json::required<const json::Object*>(config.object(), "quantization_config", {}));
    const Config inner(*quantised);
    PENSTOCK_TRY(const std::string method, inner.text("quant_method", ""));
    if (method == "awq" || method == "gptq") {
      PENSTOCK_TRY(const auto bits, inner.find("bits"));
      PENSTOCK_TRY(const auto group, inner.find("group_size"));
      if (bits == 4u && group == 128u) return WeightFormat::int4;
      return refuse("quant_method \"" + method + "\" with other than 4 bits in groups of 128 is not supported");
    }
  }
  PENSTOCK_TRY(const bool is_fp8, has_fp8_weights(config));
  return is_fp8 ? WeightFormat::fp8 : WeightFormat::bf16;
}

/// Sizes up to a bound far above any model, so that products fit in 64 bits.
Result<void> validate_shape(const ModelShape& shape) {
  struct Bound {
    const char* name;
    std::uint64_t value, low, high;
  };
  const bool has_experts = shape.experts > 0;
  const Bound bounds[] = {
      {"num_hidden_layers", shape.layers, 1, 1024},
      {"hidden_size", shape.hidden, 1, 1 << 17},
      {"num_attention_heads", shape.heads, 1, 1024},
      {"num_key_value_heads", shape.kv_heads, 1, shape.heads},
      {"head_dim", shape.head_dim, 1, 1024},
      {"intermediate_size", has_experts ? shape.expert_ffn : shape.ffn, 1, 1 << 20},
      {"vocab_size", shape.vocabulary, 1, 1 << 22},
      {"the number of experts", shape.experts, 0, 4096},
      {"num_experts_per_tok", shape.experts_per_token, has_experts ? 1u : 0u, shape.experts},
  };
  for (const Bound& bound : bounds) {
    if (bound.value < bound.low || bound.value > bound.high) {
      return refuse(std::string(bound.name) + " is " + std::to_string(bound.value) + ", must be between " +
                    std::to_string(bound.low) + " and " + std::to_string(bound.high));
    }
  }
  if (shape.heads % shape.kv_heads != 0) return refuse("num_key_value_heads does not divide num_attention_heads");
  return {};
}

void set_experts(const ExpertSpec& experts, ModelShape& shape) {
  shape.experts = experts.count;
  shape.experts_per_token = experts.per_token;
  shape.expert_ffn = experts.ffn;
}

ModelShape shape_of(const ModelSpec& spec) {
  ModelShape shape;
  shape.architecture = spec.architecture;
  shape.layers = spec.layers;
  shape.hidden = spec.hidden;
  shape.heads = spec.heads;
  shape.kv_heads = spec.kv_heads;
  shape.head_dim = spec.head_dim;
  shape.ffn = spec.ffn;
  if (spec.experts) set_experts(*spec.experts, shape);
  shape.vocabulary = spec.vocabulary;
  shape.context_tokens = spec.context_tokens;
  shape.qkv_bias = spec.qkv_bias;
  shape.qk_norm = spec.qk_norm;
  shape.tied_embeddings = spec.tied_embeddings;
  return shape;
}

Result<ModelShape> shape_from_gguf(const std::filesystem::path& path) {
  PENSTOCK_TRY(const LazyFile file, LazyFile::open(path));
  PENSTOCK_TRY(const GgufFile gguf, read_gguf_structure(file));
  PENSTOCK_TRY(const ModelSpec spec, spec_from_gguf(gguf));
  return shape_of(spec);
}

}  // namespace

Result<ModelShape> shape_from_config(std::string_view config_json) {
  auto document = json::parse(config_json);
  if (!document) return refuse("it is no valid JSON: " + document.error().message);
  PENSTOCK_TRY(const json::Object* object, json::as<const json::Object*>(*document, json::Path()));
  const Config config(*object);
  PENSTOCK_TRY(const ShapeFamily* family, read_family(config));
  ModelShape shape;
  shape.architecture = family->class_name;
  PENSTOCK_TRY(shape.weights, read_format(config));
  PENSTOCK_TRY(shape.layers, config.required("num_hidden_layers"));
  PENSTOCK_TRY(shape.hidden, config.required("hidden_size"));
  PENSTOCK_TRY(shape.heads, config.required("num_attention_heads"));
  PENSTOCK_TRY(const auto kv_heads, config.find("num_key_value_heads"));
  shape.kv_heads = kv_heads.value_or(shape.heads);
  PENSTOCK_TRY(const auto head_dim, config.find("head_dim"));
  const std::uint32_t usual = family->head_dim != 0 || shape.heads == 0 ? family->head_dim : shape.hidden / shape.heads;
  shape.head_dim = head_dim.value_or(usual);
  PENSTOCK_TRY(shape.vocabulary, config.required("vocab_size"));
  PENSTOCK_TRY(shape.context_tokens, config.required("max_position_embeddings"));
  PENSTOCK_TRY(const auto experts, read_experts(config, family->class_name));
  if (experts) {
    set_experts(*experts, shape);
  } else {
    PENSTOCK_TRY(shape.ffn, config.required("intermediate_size"));
  }
  PENSTOCK_TRY(const bool attention_bias, config.flag("attention_bias"));
  shape.qkv_bias = attention_bias || family->qkv_bias;
  shape.qk_norm = family->qk_norm;
  PENSTOCK_TRY(shape.tied_embeddings, config.flag("tie_word_embeddings"));
  PENSTOCK_TRY_VOID(validate_shape(shape));
  return shape;
}

Result<ModelShape> read_model_shape(const std::filesystem::path& path) {
  if (path.extension() == ".gguf") return shape_from_gguf(path);
  std::error_code failure;
  const bool is_folder = std::filesystem::is_directory(path, failure);
  PENSTOCK_TRY(const std::string text, read_text_file(is_folder ? path / "config.json" : path, config_bytes_max));
  return shape_from_config(text);
}

}  // namespace penstock::worker
