// From the joint projection of a layer to what attention reads: norms over heads, rotary positions, and keys and values
// into the pool, in one pass. Any thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

struct RopeAndStore {
  const Bf16* qkv = nullptr;     // [tokens][heads + 2 kv_heads][head_dim], rows qkv_stride values apart
  std::uint64_t qkv_stride = 0;  // a multiple of 8
  Bf16* q = nullptr;             // [tokens][heads][head_dim], dense
  KvPool pool;                   // its kv_heads and head_dim are the projection's
  std::uint32_t layer = 0;
  std::uint32_t heads = 0;
  std::uint32_t tokens = 0;
  const std::int32_t* positions = nullptr;  // [tokens], below `table_positions`
  const std::int64_t* slots = nullptr;      // [tokens], block * block_tokens + place; negative: this row is padding
  const float* cos = nullptr;               // [table_positions][head_dim / 2]
  const float* sin = nullptr;
  std::uint32_t table_positions = 0;
  const Bf16* q_norm = nullptr;  // [head_dim], RMS norm of each head before rotation; null: none, for both
  const Bf16* k_norm = nullptr;
  float epsilon = 1e-6f;
};
std::uint64_t bytes_of(const RopeAndStore& work);

/// Pairs are (i, i + head_dim / 2). Values are copied as they are. Positions and slots out of range are padding: their
/// q is zero and nothing is stored. Errors: invalid_argument for shapes.
Result<void> rope_and_store(const RopeAndStore& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
