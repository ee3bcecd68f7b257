// Between rope.cpp and rope.cu. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct RopeArguments {
  const std::uint16_t* qkv;
  std::uint16_t* q;
  std::uint16_t* pool;  // of this layer: base + layer * layer_values
  const std::int32_t* positions;
  const std::int64_t* slots;
  const float* cos;
  const float* sin;
  const std::uint16_t* q_norm;
  const std::uint16_t* k_norm;
  std::int64_t qkv_stride, block_values, head_values, plane_values, slots_end;
  std::int32_t heads, kv_heads, block_tokens, table_positions, tokens;
  float epsilon;
};
/// `head_dim` is 64 or 128. Returns a cudaError_t.
int start_rope(const RopeArguments& arguments, std::uint32_t head_dim, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
