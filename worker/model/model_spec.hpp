// A decoder-only transformer, dense or with experts, as data: everything that the executor needs besides the weights.
// Made from GGUF metadata or from a Hugging Face config.json; what a file asks for and this build cannot do is refused
// by name. Plain values; validated once, then const.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/gated_activation.hpp"

namespace penstock::worker {

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn };

struct RopeSpec {
  double theta = 10000;
  std::uint32_t rotary_dim = 0;
  kernels::cpu::RopeStyle style = kernels::cpu::RopeStyle::half_split;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;                      // linear, llama3, yarn
  std::uint32_t original_context = 0;     // llama3, yarn
  double low_frequency_factor = 1;        // llama3
  double high_frequency_factor = 4;       // llama3
  double beta_fast = 32;                  // yarn
  double beta_slow = 1;                   // yarn
  double attention_factor = 0;            // yarn, on cos and sin; 0: 1 + 0.1 ln(factor)
  bool truncates = true;                  // yarn: the range of pairs that are blended has whole ends
  std::vector<float> frequency_divisors;  // [rotary_dim / 2] or empty: GGUF's rope_freqs.weight
};

/// The experts that every layer has in place of one FFN. A token's router logits are router . x; its experts are the
/// `per_token` largest, of equals those with the lower index, and their weights the softmax over all logits.
struct ExpertSpec {
  std::uint32_t count = 0;
  std::uint32_t per_token = 0;
  std::uint32_t ffn = 0;      // of one expert
  bool renormalises = false;  // the chosen weights are divided by their sum
  bool biases = false;        // on the router and on all matrices
  kernels::cpu::GatedActivation activation = kernels::cpu::GatedActivation::silu;
};

struct ModelSpec {
  std::string architecture;  // "llama", "qwen2", "qwen3", "qwen3moe", "mixtral", "gptoss"
  std::string name;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;              // of a dense layer; 0 with experts
  std::optional<ExpertSpec> experts;  // absent: dense
  std::uint32_t vocabulary = 0;
  std::uint32_t context_tokens = 0;
  float norm_epsilon = 1e-5f;
  RopeSpec rope;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool output_bias = false;            // of attention
  bool attention_sinks = false;        // a score a head that the softmax counts and that has no value
  std::vector<std::uint32_t> windows;  // [layers]: keys that a row sees, its own included, 0: all; empty: all
  bool tied_embeddings = false;
  std::vector<TokenId> eos_tokens;  // ascending
};

/// Sizes that fit together and the kernels' limits. The error names the field.
Result<void> validate(const ModelSpec& spec);

/// Whether `ranks` tensor-parallel ranks can share the model. The error names the count that does not divide.
Result<void> validate_tensor_parallel(const ModelSpec& spec, std::uint32_t ranks);

class GgufFile;
Result<ModelSpec> spec_from_gguf(const GgufFile& file);
/// `config_json` is a Hugging Face config.json.
Result<ModelSpec> spec_from_config(std::string_view config_json);

/// cos and sin for positions [0, positions): [position][rotary_dim / 2], scaled. Angles are computed in double.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables make_rope_tables(const RopeSpec& spec, std::uint32_t positions);

}  // namespace penstock::worker
