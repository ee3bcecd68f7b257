// ModelSpec from a Hugging Face config.json. Settings that change the arithmetic in ways this build does not know are
// refused by name; code references in the file are ignored, nothing in it is ever run.
#include <algorithm>
#include <string>

#include "worker/model/config_json.hpp"
#include "worker/model/expert_config.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/quantisation.hpp"

namespace penstock::worker {

using config_json::Config;
using config_json::refuse;

namespace {

constexpr std::uint32_t layers_max = 1024;

struct Family {
  std::string_view class_name;
  std::string_view architecture;
  bool is_qwen3;  // norms of q and k, heads of 128 where the file doesn't say
};
// Mistral's models have Llama's arithmetic apart from the sliding window.
constexpr Family families[] = {{"LlamaForCausalLM", "llama", false},     {"MistralForCausalLM", "llama", false},
                               {"Qwen2ForCausalLM", "qwen2", false},     {"Qwen3ForCausalLM", "qwen3", true},
                               {"MixtralForCausalLM", "mixtral", false}, {"GptOssForCausalLM", "gptoss", false},
                               {"Qwen3MoeForCausalLM", "qwen3moe", true}};

Result<const Family*> read_family(const Config& config) {
  PENSTOCK_TRY(const json::Array* classes, json::required<const json::Array*>(config.object(), "architectures", {}));
  if (classes->size() != 1 || !classes->front().is_string()) return refuse("architectures must name one class");
  const std::string_view name(classes->front().get_string().data(), classes->front().get_string().size());
  for (const Family& family : families) {
    if (family.class_name == name) return &family;
  }
  return refuse("architecture \"" + std::string(name) + "\" is not supported");
}

/// The published form of gpt-oss; others hold their experts transposed.
Result<void> expect_mxfp4(const Config& config) {
  PENSTOCK_TRY(const json::Object* object,
               json::required<const json::Object*>(config.object(), "quantization_config", {}));
  PENSTOCK_TRY(const std::string method, Config(*object).text("quant_method", ""));
  if (method == "mxfp4") return {};
  return refuse("quantization_config: quant_method \"" + method + "\" is not supported for gpt-oss, only \"mxfp4\" is");
}

Result<void> refuse_unsupported(const Config& config, const Family& family) {
  PENSTOCK_TRY(const std::string activation, config.text("hidden_act", "silu"));
  if (activation != "silu") return refuse("hidden_act \"" + activation + "\" is not supported");
  if (family.class_name == "GptOssForCausalLM") {
    PENSTOCK_TRY_VOID(expect_mxfp4(config));
  } else {
    PENSTOCK_TRY_VOID(has_fp8_weights(config));
  }
  PENSTOCK_TRY(const bool mlp_bias, config.flag("mlp_bias"));
  if (mlp_bias) return refuse("mlp_bias is set; that is not supported");
  PENSTOCK_TRY(const double pretraining_ranks, config.number("pretraining_tp", 1));
  if (pretraining_ranks != 1) return refuse("pretraining_tp other than 1 is not supported");
  PENSTOCK_TRY(const double rotary_share, config.number("partial_rotary_factor", 1));
  if (rotary_share != 1) return refuse("partial_rotary_factor other than 1 is not supported");
  return {};
}

/// Mistral's models have a window in every layer, Qwen's dense ones from a layer on, or as layer_types says; that of
/// others would mean something else.
Result<void> read_windows(const Config& config, const Family& family, ModelSpec& spec) {
  const bool is_mistral = family.class_name == "MistralForCausalLM" || family.class_name == "MixtralForCausalLM";
  const bool is_qwen = family.class_name == "Qwen2ForCausalLM" || family.class_name == "Qwen3ForCausalLM";
  const bool is_gpt_oss = family.class_name == "GptOssForCausalLM";
  PENSTOCK_TRY(const bool uses_window, config.flag("use_sliding_window"));
  const bool may_ignore = is_qwen || family.class_name == "Qwen3MoeForCausalLM";
  std::uint32_t window = 0;
  if (spec.layers > layers_max) return refuse("num_hidden_layers is " + std::to_string(spec.layers));
  if (may_ignore ? uses_window : config.is_set("sliding_window")) {
    if (!is_mistral && !is_qwen && !is_gpt_oss) return refuse("sliding_window is set; that is not supported");
    PENSTOCK_TRY(window, config.required("sliding_window"));
  }
  if (window == 0 && !config.is_set("layer_types")) return {};
  std::vector<std::uint32_t> windows(spec.layers, window);
  if (is_qwen && !config.is_set("layer_types")) {
    PENSTOCK_TRY(const std::uint32_t full_layers, config.required("max_window_layers"));
    std::fill_n(windows.begin(), std::min(full_layers, spec.layers), 0);
  }
  if (config.is_set("layer_types")) {
    PENSTOCK_TRY(const json::Array* types, json::required<const json::Array*>(config.object(), "layer_types", {}));
    windows.clear();
    for (const json::Value& type : *types) {
      PENSTOCK_TRY(const std::string_view name, json::as<std::string_view>(type, json::Path()));
      const bool is_sliding = name == "sliding_attention" && window > 0;
      if (!is_sliding && name != "full_attention")
        return refuse("layer type \"" + std::string(name) + "\" is not supported");
      windows.push_back(is_sliding ? window : 0);
    }
    if (windows.size() != spec.layers) return refuse("layer_types does not name every layer");
  }
  // A window over the whole context hides nothing.
  const auto hides = [&](std::uint32_t one) { return one > 0 && one < spec.context_tokens; };
  if (std::any_of(windows.begin(), windows.end(), hides)) spec.windows = std::move(windows);
  return {};
}

Result<void> read_scaling(const Config& scaling, RopeSpec& rope, std::uint32_t context) {
  PENSTOCK_TRY(const std::string old_type, scaling.text("type", "default"));
  PENSTOCK_TRY(const std::string type, scaling.text("rope_type", old_type));
  PENSTOCK_TRY(rope.theta, scaling.number("rope_theta", rope.theta));
  if (type == "default") return {};
  PENSTOCK_TRY(rope.factor, scaling.number("factor", 1));
  PENSTOCK_TRY(const auto original, scaling.find("original_max_position_embeddings"));
  rope.original_context = original.value_or(context);
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    PENSTOCK_TRY(rope.low_frequency_factor, scaling.number("low_freq_factor", 1));
    PENSTOCK_TRY(rope.high_frequency_factor, scaling.number("high_freq_factor", 4));
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    PENSTOCK_TRY(rope.beta_fast, scaling.number("beta_fast", 32));
    PENSTOCK_TRY(rope.beta_slow, scaling.number("beta_slow", 1));
    PENSTOCK_TRY(rope.attention_factor, scaling.number("attention_factor", 0));
    for (const std::string_view key : {"mscale", "mscale_all_dim"}) {
      if (scaling.is_set(key)) return refuse("rope scaling yarn with " + std::string(key) + " is not supported");
    }
    if (scaling.is_set("truncate")) {
      PENSTOCK_TRY(rope.truncates, scaling.flag("truncate"));
    }
  } else {
    return refuse("rope scaling type \"" + type + "\" is not supported");
  }
  return {};
}

Result<void> read_rope(const Config& config, ModelSpec& spec) {
  spec.rope.rotary_dim = spec.head_dim;
  spec.rope.style = kernels::cpu::RopeStyle::half_split;
  PENSTOCK_TRY(spec.rope.theta, config.number("rope_theta", 10000));
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!config.is_set(key)) continue;
    PENSTOCK_TRY(const json::Object* scaling, json::required<const json::Object*>(config.object(), key, {}));
    PENSTOCK_TRY_VOID(read_scaling(Config(*scaling), spec.rope, spec.context_tokens));
  }
  return {};
}

}  // namespace

Result<ModelSpec> spec_from_config(std::string_view config_json) {
  auto document = json::parse(config_json);
  if (!document) return refuse("it is no valid JSON: " + document.error().message);
  PENSTOCK_TRY(const json::Object* object, json::as<const json::Object*>(*document, json::Path()));
  const Config config(*object);
  PENSTOCK_TRY(const Family* family, read_family(config));
  PENSTOCK_TRY_VOID(refuse_unsupported(config, *family));
  ModelSpec spec;
  spec.architecture = family->architecture;
  PENSTOCK_TRY(spec.layers, config.required("num_hidden_layers"));
  PENSTOCK_TRY(spec.hidden, config.required("hidden_size"));
  PENSTOCK_TRY(spec.heads, config.required("num_attention_heads"));
  PENSTOCK_TRY(const auto kv_heads, config.find("num_key_value_heads"));
  spec.kv_heads = kv_heads.value_or(spec.heads);
  if (spec.heads == 0) return refuse("num_attention_heads is 0");
  PENSTOCK_TRY(const auto head_dim, config.find("head_dim"));
  spec.head_dim = head_dim.value_or(family->is_qwen3 ? 128 : spec.hidden / spec.heads);
  PENSTOCK_TRY(spec.experts, read_experts(config, family->class_name));
  if (!spec.experts) {
    PENSTOCK_TRY(spec.ffn, config.required("intermediate_size"));
  }
  PENSTOCK_TRY(spec.vocabulary, config.required("vocab_size"));
  PENSTOCK_TRY(spec.context_tokens, config.required("max_position_embeddings"));
  PENSTOCK_TRY(const double epsilon, config.number("rms_norm_eps", 1e-6));
  spec.norm_epsilon = static_cast<float>(epsilon);
  PENSTOCK_TRY(const bool attention_bias, config.flag("attention_bias"));
  spec.qkv_bias = attention_bias || spec.architecture == "qwen2" || spec.architecture == "gptoss";
  spec.qk_norm = family->is_qwen3;
  PENSTOCK_TRY(spec.tied_embeddings, config.flag("tie_word_embeddings"));
  spec.output_bias = spec.attention_sinks = family->class_name == "GptOssForCausalLM";
  PENSTOCK_TRY_VOID(read_windows(config, *family, spec));
  PENSTOCK_TRY_VOID(read_rope(config, spec));
  PENSTOCK_TRY_VOID(validate(spec));
  return spec;
}

}  // namespace penstock::worker
