#include "tests/support/tiny_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"
#include "tests/support/byte_tokenizer.hpp"

namespace penstock::test {
namespace {

using kernels::cpu::WeightFormat;

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

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

std::uint32_t gguf_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return 0;
    case WeightFormat::f16:
      return 1;
    case WeightFormat::bf16:
      return 30;
    case WeightFormat::q8_0:
      return 8;
    case WeightFormat::q4_0:
      return 2;
    case WeightFormat::q4_1:
      return 3;
    case WeightFormat::q4_k:
      return 12;
    case WeightFormat::q6_k:
      return 14;
  }
  return 0;
}

void put_text(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out += text;
}

class GgufWriter {
 public:
  void number(std::string_view key, std::uint32_t value) { entry(key, 4), put(metadata_, value); }
  void real(std::string_view key, float value) { entry(key, 6), put(metadata_, value); }
  void flag(std::string_view key, bool value) { entry(key, 7), metadata_ += static_cast<char>(value); }
  void text(std::string_view key, std::string_view value) { entry(key, 8), put_text(metadata_, value); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    entry(key, 9);
    put(metadata_, std::uint32_t{8});
    put(metadata_, std::uint64_t{values.size()});
    for (const std::string& value : values) put_text(metadata_, value);
  }
  void numbers(std::string_view key, const std::vector<std::int32_t>& values) {
    entry(key, 9);
    put(metadata_, std::uint32_t{5});
    put(metadata_, std::uint64_t{values.size()});
    for (const std::int32_t value : values) put(metadata_, value);
  }
  void tensor(std::string_view name, const TinyTensor& tensor, WeightFormat format) {
    put_text(tensors_, name);
    const bool is_vector = tensor.rows == 1;
    put(tensors_, std::uint32_t{is_vector ? 1u : 2u});
    put(tensors_, tensor.columns);
    if (!is_vector) put(tensors_, tensor.rows);
    put(tensors_, gguf_type(format));
    data_.resize((data_.size() + 31) / 32 * 32);
    put(tensors_, std::uint64_t{data_.size()});
    data_ += encode_tensor(tensor, format);
    ++tensor_count_;
  }
  std::string finish() const {
    std::string file = "GGUF";
    put(file, std::uint32_t{3});
    put(file, tensor_count_);
    put(file, entry_count_);
    file += metadata_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data_;
  }

 private:
  void entry(std::string_view key, std::uint32_t type) {
    put_text(metadata_, key);
    put(metadata_, type);
    ++entry_count_;
  }
  std::string metadata_, tensors_, data_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t entry_count_ = 0;
};

/// Rows (half, i) of each head become rows (i, half).
TinyTensor interleave_heads(const TinyTensor& tensor, std::uint32_t head_dim) {
  TinyTensor out = tensor;
  const std::uint64_t rows = tensor.rows == 1 ? tensor.columns : tensor.rows;  // a bias is permuted too
  const std::uint64_t width = tensor.values.size() / rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t inside = row % head_dim;
    const std::uint64_t to = row - inside + inside % (head_dim / 2) * 2 + inside / (head_dim / 2);
    std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                out.values.begin() + static_cast<std::ptrdiff_t>(to * width));
  }
  return out;
}

std::string gguf_name(std::string name) {
  const std::pair<std::string_view, std::string_view> parts[] = {{"model.embed_tokens", "token_embd"},
                                                                 {"model.norm", "output_norm"},
                                                                 {"lm_head", "output"},
                                                                 {"model.layers.", "blk."},
                                                                 {"post_attention_layernorm", "ffn_norm"},
                                                                 {"input_layernorm", "attn_norm"},
                                                                 {"self_attn.q_proj", "attn_q"},
                                                                 {"self_attn.k_proj", "attn_k"},
                                                                 {"self_attn.v_proj", "attn_v"},
                                                                 {"self_attn.o_proj", "attn_output"},
                                                                 {"self_attn.q_norm", "attn_q_norm"},
                                                                 {"self_attn.k_norm", "attn_k_norm"},
                                                                 {"mlp.gate_proj", "ffn_gate"},
                                                                 {"mlp.up_proj", "ffn_up"},
                                                                 {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : parts) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

/// The byte-level spelling of GPT-2: printable bytes stand for themselves, others for code points from 256 on.
std::vector<std::string> byte_spellings() {
  std::vector<std::string> out;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const unsigned code = printable ? byte : next++;
    if (code < 0x80) {
      out.push_back({static_cast<char>(code)});
    } else {
      out.push_back({static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))});
    }
  }
  return out;
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string config_json(const TinyModel& model) {
  const std::map<std::string, std::string> classes{
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
  const auto field = [](const char* key, std::uint64_t value) {
    return ",\"" + std::string(key) + "\":" + std::to_string(value);
  };
  std::string json = "{\"architectures\":[\"" + classes.at(model.architecture) + "\"],\"hidden_act\":\"silu\"";
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
  json += fp8_config(model.fp8);
  for (const auto& [key, value] : model.extra_config) json += ",\"" + key + "\":" + value;
  return json +
         ",\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"tie_word_embeddings\":" + (model.tied ? "true}" : "false}");
}

}  // namespace

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
    add(prefix + "mlp.gate_proj.weight", model.ffn, model.hidden, 0, spread);
    add(prefix + "mlp.up_proj.weight", model.ffn, model.hidden, 0, spread);
    add(prefix + "mlp.down_proj.weight", model.hidden, model.ffn, 0, spread);
    if (model.architecture == "qwen2") {
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

std::string tiny_gguf(const TinyModel& model) {
  GgufWriter file;
  const std::string prefix = model.architecture + ".";
  file.text("general.architecture", model.architecture);
  file.text("general.name", "tiny");
  file.number(prefix + "block_count", model.layers);
  file.number(prefix + "embedding_length", model.hidden);
  file.number(prefix + "attention.head_count", model.heads);
  file.number(prefix + "attention.head_count_kv", model.kv_heads);
  file.number(prefix + "attention.key_length", model.head_dim);
  file.number(prefix + "attention.value_length", model.head_dim);
  file.number(prefix + "feed_forward_length", model.ffn);
  file.number(prefix + "context_length", model.context);
  file.number(prefix + "rope.dimension_count", model.head_dim);
  file.real(prefix + "rope.freq_base", 10000);
  file.real(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  if (!model.rope_scaling.empty()) {
    file.text(prefix + "rope.scaling.type", model.rope_scaling);
    file.real(prefix + "rope.scaling.factor", 4);
    file.number(prefix + "rope.scaling.original_context_length", 64);
  }
  std::vector<std::string> tokens = byte_spellings();
  tokens.emplace_back("<|im_start|>");
  tokens.emplace_back("<|im_end|>");
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[im_start] = types[im_end] = 3;
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "smollm");
  file.texts("tokenizer.ggml.tokens", tokens);
  file.numbers("tokenizer.ggml.token_type", types);
  file.texts("tokenizer.ggml.merges", {});
  file.number("tokenizer.ggml.eos_token_id", im_end);
  file.flag("tokenizer.ggml.add_bos_token", false);
  file.text("tokenizer.chat_template", chat_template_source());
  for (const auto& [key, value] : model.extra_metadata) file.number(key, value);
  for (const auto& [name, tensor] : tiny_tensors(model)) {
    const bool permuted = model.architecture == "llama" &&
                          (name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos);
    file.tensor(gguf_name(name), permuted ? interleave_heads(tensor, model.head_dim) : tensor,
                tensor.rows == 1 ? WeightFormat::f32 : model.format);
  }
  return file.finish();
}

void write_tiny_gguf(const TinyModel& model, const std::filesystem::path& path) {
  write_file(path, tiny_gguf(model));
}

void write_tiny_folder(const TinyModel& model, const std::filesystem::path& folder, std::uint32_t shards) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", config_json(model));
  write_file(folder / "tokenizer.json", byte_tokenizer_json());
  write_file(folder / "tokenizer_config.json", "{\"eos_token\":{\"content\":\"<|im_end|>\"}}");
  write_file(folder / "chat_template.jinja", std::string(chat_template_source()));
  write_file(folder / "generation_config.json",
             "{\"temperature\":0.5,\"top_p\":0.9,\"top_k\":20,\"eos_token_id\":[257]}");
  const std::string dtype = model.format == WeightFormat::f32   ? "F32"
                            : model.format == WeightFormat::f16 ? "F16"
                                                                : "BF16";
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
  for (const auto& [name, tensor] : tiny_tensors(model)) {
    const bool is_matrix = tensor.rows > 1;
    const std::string shape = is_matrix ? shape_of(tensor.rows, tensor.columns) : std::to_string(tensor.columns);
    if (model.fp8.empty() || !is_matrix || name.find("_proj.weight") == std::string::npos) {
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
