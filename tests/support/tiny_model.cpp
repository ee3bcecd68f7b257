#include "tests/support/tiny_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"
#include "tests/support/byte_tokenizer.hpp"
#include "tests/support/tiny_bytes.hpp"

namespace penstock::test {
namespace {

using kernels::cpu::WeightFormat;

void put_half(std::string& out, float value) {
  put(out, kernels::cpu::f32_to_f16(value));
}

float round_to(WeightFormat format, float value) {
  if (format == WeightFormat::f16) return kernels::cpu::f16_to_f32(kernels::cpu::f32_to_f16(value));
  if (format == WeightFormat::bf16) return kernels::cpu::bf16_to_f32(kernels::cpu::f32_to_bf16(value));
  return value;
}

void encode_q8_0(std::string& out, const float* values) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = round_to(WeightFormat::f16, largest / 127);
  put_half(out, scale);
  for (int i = 0; i < 32; ++i) {
    out += static_cast<char>(std::clamp(scale > 0 ? std::lround(values[i] / scale) : 0L, -127L, 127L));
  }
}

/// Q4_0 has codes around 8, Q4_1 a minimum of its own.
void encode_q4(std::string& out, const float* values, bool has_min) {
  const auto [low, high] = std::minmax_element(values, values + 32);
  const float bound = std::max(std::abs(*low), std::abs(*high));
  const float scale = round_to(WeightFormat::f16, has_min ? (*high - *low) / 15 : bound / 7);
  const float minimum = has_min ? round_to(WeightFormat::f16, *low) : -8 * scale;
  put_half(out, scale);
  if (has_min) put_half(out, minimum);
  const auto code = [&](int i) {
    return static_cast<unsigned>(std::clamp(scale > 0 ? std::lround((values[i] - minimum) / scale) : 0L, 0L, 15L));
  };
  for (int i = 0; i < 16; ++i) out += static_cast<char>(code(i) | code(i + 16) << 4);
}

/// Super-blocks of random codes, drawn from the values they stand for so that equal rows stay equal.
void encode_k(std::string& out, WeightFormat format, const float* values) {
  std::uint64_t seed = 7;
  for (int i = 0; i < 256; ++i) seed = seed * 1099511628211u + std::bit_cast<std::uint32_t>(values[i]);
  Random random(seed);
  const auto random_bytes = [&](int count) {
    for (int i = 0; i < count; ++i) out += static_cast<char>(random.next());
  };
  if (format == WeightFormat::q4_k) {
    put_half(out, 0.0004f);
    put_half(out, 0.003f);
    random_bytes(12 + 128);
  } else {
    random_bytes(128 + 64 + 16);
    put_half(out, 0.00005f);
  }
}

void encode_dense(std::string& out, WeightFormat format, float value) {
  if (format == WeightFormat::f32) put(out, value);
  if (format == WeightFormat::f16) put_half(out, value);
  if (format == WeightFormat::bf16) put(out, kernels::cpu::f32_to_bf16(value));
}

std::string experts_config(const TinyModel& model) {
  std::string json = ",\"num_experts_per_tok\":" + std::to_string(model.experts_per_token);
  const std::string count = std::to_string(model.experts);
  if (model.architecture == "llama") return json + ",\"num_local_experts\":" + count;
  if (model.architecture == "gptoss") {
    json += ",\"num_local_experts\":" + count + ",\"attention_bias\":true,\"swiglu_limit\":7.0,\"layer_types\":[";
    for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
      const bool slides = layer % 2 == 0 && model.window > 0;
      json += std::string(layer == 0 ? "" : ",") + (slides ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    return json + "],\"quantization_config\":{\"quant_method\":\"mxfp4\"}";
  }
  return json + ",\"num_experts\":" + count + ",\"moe_intermediate_size\":" + std::to_string(model.ffn) +
         ",\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"norm_topk_prob\":" +
         (model.renormalises ? "true" : "false");
}

std::string config_json(const TinyModel& model) {
  const std::map<std::string, std::string> dense{
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
  const std::map<std::string, std::string> sparse{
      {"llama", "MixtralForCausalLM"}, {"qwen3", "Qwen3MoeForCausalLM"}, {"gptoss", "GptOssForCausalLM"}};
  const auto field = [](const char* key, std::uint64_t value) {
    return ",\"" + std::string(key) + "\":" + std::to_string(value);
  };
  const std::string class_name = model.experts > 0  ? sparse.at(model.architecture)
                                 : model.window > 0 ? "MistralForCausalLM"
                                                    : dense.at(model.architecture);
  std::string json = "{\"architectures\":[\"" + class_name + "\"],\"hidden_act\":\"silu\"";
  json += field("num_hidden_layers", model.layers) + field("hidden_size", model.hidden) +
          field("num_attention_heads", model.heads) + field("num_key_value_heads", model.kv_heads) +
          field("head_dim", model.head_dim) + field("intermediate_size", model.ffn) +
          field("vocab_size", model.vocabulary) + field("max_position_embeddings", model.context) +
          field("eos_token_id", im_end);
  if (!model.rope_scaling.empty()) {
    json +=
        ",\"rope_scaling\":{\"rope_type\":\"" + model.rope_scaling +
        "\",\"factor\":4.0,\"original_max_position_embeddings\":64,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0}";
  }
  if (model.experts > 0) json += experts_config(model);
  if (model.window > 0) json += field("sliding_window", model.window);
  json += fp8_config(model.fp8);
  for (const auto& [key, value] : model.extra_config) json += ",\"" + key + "\":" + value;
  return json +
         ",\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"tie_word_embeddings\":" + (model.tied ? "true}" : "false}");
}

}  // namespace

TinyExpertNames expert_names(const TinyModel& model) {
  if (model.architecture == "llama") return {"block_sparse_moe.gate", "block_sparse_moe.experts.", "w1", "w3", "w2"};
  if (model.architecture == "gptoss") return {"mlp.router", "mlp.experts.", "gate_proj", "up_proj", "down_proj"};
  return {"mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj"};
}

std::map<std::string, TinyTensor> tiny_tensors(const TinyModel& model) {
  Random random(model.seed);
  std::map<std::string, TinyTensor> tensors;
  const auto add = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns, float centre, float spread) {
    TinyTensor tensor{rows, columns, {}};
    for (std::uint64_t i = 0; i < rows * columns; ++i) {
      const float value = centre + spread * static_cast<float>(2 * random.uniform() - 1);
      tensor.values.push_back(round_to(model.format, value));
    }
    tensors.emplace(name, std::move(tensor));
  };
  const std::uint64_t q_rows = std::uint64_t{model.heads} * model.head_dim;
  const std::uint64_t kv_rows = std::uint64_t{model.kv_heads} * model.head_dim;
  const float spread = 0.25f;
  add("model.embed_tokens.weight", model.vocabulary, model.hidden, 0, 1);
  add("model.norm.weight", 1, model.hidden, 1, 0.2f);
  if (!model.tied) add("lm_head.weight", model.vocabulary, model.hidden, 0, spread);
  for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", 1, model.hidden, 1, 0.2f);
    add(prefix + "post_attention_layernorm.weight", 1, model.hidden, 1, 0.2f);
    add(prefix + "self_attn.q_proj.weight", q_rows, model.hidden, 0, spread);
    add(prefix + "self_attn.k_proj.weight", kv_rows, model.hidden, 0, spread);
    add(prefix + "self_attn.v_proj.weight", kv_rows, model.hidden, 0, spread);
    add(prefix + "self_attn.o_proj.weight", model.hidden, q_rows, 0, spread);
    const auto add_ffn = [&](const std::string& before, const TinyExpertNames& names) {
      add(before + names.gate + ".weight", model.ffn, model.hidden, 0, spread);
      add(before + names.up + ".weight", model.ffn, model.hidden, 0, spread);
      add(before + names.down + ".weight", model.hidden, model.ffn, 0, spread);
    };
    if (model.experts == 0) {
      add_ffn(prefix, {"", "", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});
    } else {
      const TinyExpertNames names = expert_names(model);
      add(prefix + names.router + ".weight", model.experts, model.hidden, 0, spread);
      for (std::uint32_t expert = 0; expert < model.experts; ++expert) {
        add_ffn(prefix + names.each + std::to_string(expert) + ".", names);
      }
    }
    if (model.architecture == "gptoss") {
      add(prefix + "self_attn.sinks", 1, model.heads, 1, 2);
      add(prefix + "self_attn.o_proj.bias", 1, model.hidden, 0, 0.5f);
      add(prefix + "mlp.router.bias", 1, model.experts, 0, 1);
      for (std::uint32_t expert = 0; expert < model.experts; ++expert) {
        const std::string before = prefix + "mlp.experts." + std::to_string(expert) + ".";
        add(before + "gate_proj.bias", 1, model.ffn, 0, 8);  // so that both limits bite
        add(before + "up_proj.bias", 1, model.ffn, 0, 8);
        add(before + "down_proj.bias", 1, model.hidden, 0, 0.5f);
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
          snap_to_mxfp4(tensors.at(before + name + ".weight"));
        }
      }
    }
    if (model.architecture == "qwen2" || model.architecture == "gptoss") {
      add(prefix + "self_attn.q_proj.bias", 1, q_rows, 0, 0.5f);
      add(prefix + "self_attn.k_proj.bias", 1, kv_rows, 0, 0.5f);
      add(prefix + "self_attn.v_proj.bias", 1, kv_rows, 0, 0.5f);
    }
    if (model.architecture == "qwen3") {
      add(prefix + "self_attn.q_norm.weight", 1, model.head_dim, 1, 0.2f);
      add(prefix + "self_attn.k_norm.weight", 1, model.head_dim, 1, 0.2f);
    }
  }
  return tensors;
}

std::string dtype_of(WeightFormat format) {
  return format == WeightFormat::f32 ? "F32" : format == WeightFormat::f16 ? "F16" : "BF16";
}

std::string encode_tensor(const TinyTensor& tensor, WeightFormat format) {
  std::string out;
  const std::size_t step = kernels::cpu::block_columns(format);
  if (tensor.columns % step != 0) throw std::runtime_error("a row is no whole number of blocks");
  for (std::size_t at = 0; at < tensor.values.size(); at += step) {
    const float* values = tensor.values.data() + at;
    if (step == 1) encode_dense(out, format, *values);
    if (format == WeightFormat::q8_0) encode_q8_0(out, values);
    if (format == WeightFormat::q4_0) encode_q4(out, values, false);
    if (format == WeightFormat::q4_1) encode_q4(out, values, true);
    if (step == 256) encode_k(out, format, values);
  }
  return out;
}

/// The router stays as it is.
static bool is_fp8_matrix(const TinyModel& model, const std::string& name) {
  if (name.find("_proj.weight") != std::string::npos) return true;
  return model.experts > 0 && name.find(expert_names(model).each) != std::string::npos;
}

void write_tiny_folder(const TinyModel& model, const std::filesystem::path& folder, std::uint32_t shards) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", config_json(model));
  write_file(folder / "tokenizer.json", byte_tokenizer_json());
  write_file(folder / "tokenizer_config.json", "{\"eos_token\":{\"content\":\"<|im_end|>\"}}");
  write_file(folder / "chat_template.jinja", std::string(chat_template_source()));
  write_file(folder / "generation_config.json",
             "{\"temperature\":0.5,\"top_p\":0.9,\"top_k\":20,\"eos_token_id\":[257]}");
  const std::string dtype = dtype_of(model.format);
  std::vector<std::string> headers(shards, "{\"__metadata__\":{\"format\":\"pt\"}"), data(shards);
  std::string index = "{\"weight_map\":{";
  std::uint32_t shard = 0;
  const auto add = [&](const std::string& name, const std::string& type, const std::string& shape,
                       const std::string& bytes) {
    headers[shard] += ",\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                      std::to_string(data[shard].size()) + "," + std::to_string(data[shard].size() + bytes.size()) +
                      "]}";
    data[shard] += bytes;
    index += (index.back() == '{' ? "\"" : ",\"") + name + "\":\"part-" + std::to_string(shard) + ".safetensors\"";
    shard = (shard + 1) % shards;
  };
  const auto shape_of = [](std::uint64_t rows, std::uint64_t columns) {
    return std::to_string(rows) + "," + std::to_string(columns);
  };
  const std::map<std::string, TinyTensor> tensors = tiny_tensors(model);
  const bool is_fused = model.architecture == "gptoss";
  for (std::uint32_t layer = 0; is_fused && layer < model.layers; ++layer) {
    add_fused_experts(model, tensors, layer, add);
  }
  for (const auto& [name, tensor] : tensors) {
    if (is_fused && name.find(".experts.") != std::string::npos) continue;
    const bool is_matrix = tensor.rows > 1;
    const std::string shape = is_matrix ? shape_of(tensor.rows, tensor.columns) : std::to_string(tensor.columns);
    if (model.fp8.empty() || !is_matrix || !is_fp8_matrix(model, name)) {
      add(name, dtype, shape, encode_tensor(tensor, model.format));
      continue;
    }
    const TinyFp8 coded = encode_fp8(tensor, model.fp8);
    const bool has_blocks = model.fp8 == "block", is_one = model.fp8 == "tensor";
    const TinyTensor scales{coded.scale_rows, coded.scale_columns, coded.scales};
    add(name, "F8_E4M3", shape, coded.codes);
    add(name + (has_blocks ? "_scale_inv" : "_scale"), "F32",
        is_one ? "" : shape_of(coded.scale_rows, coded.scale_columns), encode_tensor(scales, WeightFormat::f32));
  }
  if (shards > 1) write_file(folder / "model.safetensors.index.json", index + "}}");
  for (std::uint32_t i = 0; i < shards; ++i) {
    const std::string header = headers[i] + "}";
    std::string file;
    put(file, std::uint64_t{header.size()});
    write_file(folder / (shards > 1 ? "part-" + std::to_string(i) + ".safetensors" : "model.safetensors"),
               file + header + data[i]);
  }
}

}  // namespace penstock::test
