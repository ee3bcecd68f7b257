// Published settings of known models, as their config.json has them.
#pragma once

#include <string>

#include "worker/model/shape.hpp"

namespace penstock::worker::plan {

inline const std::string llama_8b = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false})";
inline const std::string llama_70b = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192,
  "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false})";
inline const std::string qwen3_06b = R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
  "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
  "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": true})";
inline const std::string qwen3_30b = R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48, "num_attention_heads": 32,
  "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
  "tie_word_embeddings": false})";
inline const std::string mixtral_8x7b = R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
  "sliding_window": null, "tie_word_embeddings": false})";

inline ModelShape shape(const std::string& config) {
  return shape_from_config(config).value();
}

}  // namespace penstock::worker::plan
