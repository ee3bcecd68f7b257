#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/byte_tokenizer.hpp"
#include "tests/support/tiny_bytes.hpp"
#include "tests/support/tiny_model.hpp"

namespace penstock::test {
namespace {

using kernels::cpu::WeightFormat;

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
  /// `matrices`: how many lie one below the other, as a third dimension; 1: none.
  void tensor(std::string_view name, const TinyTensor& tensor, WeightFormat format, std::uint64_t matrices = 1) {
    put_text(tensors_, name);
    const bool is_vector = tensor.rows == 1;
    put(tensors_, std::uint32_t{is_vector ? 1u : matrices == 1 ? 2u : 3u});
    put(tensors_, tensor.columns);
    if (!is_vector) put(tensors_, tensor.rows / matrices);
    if (matrices > 1) put(tensors_, matrices);
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

/// The router and, each as one tensor, all experts' matrices of a layer.
void add_experts(GgufWriter& file, const TinyModel& model, const std::map<std::string, TinyTensor>& tensors,
                 std::uint32_t layer) {
  const TinyExpertNames names = expert_names(model);
  const std::string from = "model.layers." + std::to_string(layer) + ".", to = "blk." + std::to_string(layer) + ".";
  file.tensor(to + "ffn_gate_inp.weight", tensors.at(from + names.router + ".weight"), WeightFormat::f32);
  const std::pair<std::string, std::string> matrices[] = {
      {names.gate, "ffn_gate_exps"}, {names.up, "ffn_up_exps"}, {names.down, "ffn_down_exps"}};
  for (const auto& [one, all] : matrices) {
    TinyTensor stack{0, 0, {}};
    for (std::uint32_t expert = 0; expert < model.experts; ++expert) {
      const TinyTensor& tensor = tensors.at(from + names.each + std::to_string(expert) + "." + one + ".weight");
      stack.rows += tensor.rows;
      stack.columns = tensor.columns;
      stack.values.insert(stack.values.end(), tensor.values.begin(), tensor.values.end());
    }
    file.tensor(to + all + ".weight", stack, model.format, model.experts);
  }
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

}  // namespace

std::string tiny_gguf(const TinyModel& model) {
  GgufWriter file;
  const bool has_own_experts = model.experts > 0 && model.architecture == "qwen3";
  const std::string architecture = has_own_experts ? "qwen3moe" : model.architecture;
  const std::string prefix = architecture + ".";
  file.text("general.architecture", architecture);
  file.text("general.name", "tiny");
  file.number(prefix + "block_count", model.layers);
  file.number(prefix + "embedding_length", model.hidden);
  file.number(prefix + "attention.head_count", model.heads);
  file.number(prefix + "attention.head_count_kv", model.kv_heads);
  file.number(prefix + "attention.key_length", model.head_dim);
  file.number(prefix + "attention.value_length", model.head_dim);
  file.number(prefix + "feed_forward_length", model.ffn);
  if (model.experts > 0) {
    file.number(prefix + "expert_count", model.experts);
    file.number(prefix + "expert_used_count", model.experts_per_token);
  }
  if (has_own_experts) file.number(prefix + "expert_feed_forward_length", model.ffn);
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
  const std::map<std::string, TinyTensor> tensors = tiny_tensors(model);
  for (std::uint32_t layer = 0; layer < model.layers && model.experts > 0; ++layer) {
    add_experts(file, model, tensors, layer);
  }
  const std::string router = "." + expert_names(model).router + ".", expert = "." + expert_names(model).each;
  for (const auto& [name, tensor] : tensors) {
    if (name.find(router) != std::string::npos || name.find(expert) != std::string::npos) continue;
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

}  // namespace penstock::test
