// The shape of Llama-3.1-8B, for benchmarks of whole steps and prompts.
#pragma once

#include <cstdint>

namespace penstock::bench::gpu {

constexpr std::uint32_t layers = 32, hidden = 4096, heads = 32, kv_heads = 8, head_dim = 128, ffn = 14336;
constexpr std::uint32_t vocabulary = 128256, qkv = (heads + 2 * kv_heads) * head_dim;
constexpr std::uint64_t layer_values = std::uint64_t{hidden} * (qkv + hidden + 3 * ffn);
constexpr std::uint64_t head_values = std::uint64_t{vocabulary} * hidden;
constexpr std::uint64_t weight_values = layers * layer_values + head_values;

}  // namespace penstock::bench::gpu
