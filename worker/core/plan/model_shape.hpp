// The sizes of a decoder-only transformer, dense or with experts: all that memory and time depend on. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::worker::plan {

/// How the matrices of the layers are kept. Embedding, head, norms and expert routers stay bf16.
enum class WeightFormat : std::uint8_t {
  bf16,
  fp8,   // one byte; scales are too few to count
  int4,  // groups of 128 with a 16-bit scale and a 16-bit zero: 4.25 bits
};

struct ModelShape {
  std::string architecture;  // the class name in config.json, or GGUF's architecture
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;  // of a dense layer; 0 with experts
  std::uint32_t vocabulary = 0;
  std::uint32_t context_tokens = 0;
  std::uint32_t experts = 0;  // 0: dense
  std::uint32_t experts_per_token = 0;
  std::uint32_t expert_ffn = 0;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool tied_embeddings = false;
  WeightFormat weights = WeightFormat::bf16;  // of the checkpoint
};

}  // namespace penstock::worker::plan
