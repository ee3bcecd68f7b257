// Where keys and values of a token are in the pool of KV blocks: [block][kv_head][layer][K, V][token][dim], all dense;
// a block of one head and layer is one run of keys and, right behind it, one of values. Plain values.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

struct KvPool {
  Bf16* base = nullptr;  // of block 0
  std::uint32_t blocks = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t layers = 0;
  std::uint32_t block_tokens = 0;  // 16
  std::uint32_t head_dim = 0;      // 64 or 128

  /// Distances in values.
  std::uint64_t plane_values() const { return std::uint64_t{block_tokens} * head_dim; }
  std::uint64_t layer_values() const { return 2 * plane_values(); }
  std::uint64_t head_values() const { return layers * layer_values(); }
  std::uint64_t block_values() const { return kv_heads * head_values(); }
};

}  // namespace penstock::kernels::cuda
