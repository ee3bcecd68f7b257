// Between decode_attention.cpp and the instances of its kernel. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

/// With `qkv`, the kernel takes its queries, the new key and the new value from there.
struct NewTokenArguments {
  const std::uint16_t* qkv;  // [sequences], qkv_stride apart: heads, then kv_heads keys, then kv_heads values
  const float* cos;
  const float* sin;
  const std::uint16_t* q_norm;
  const std::uint16_t* k_norm;
  std::int64_t qkv_stride;
  std::int32_t table_positions;
  float epsilon;
};

struct AttentionArguments {
  const std::uint16_t* q;
  std::uint16_t* out;
  std::uint16_t* pool;  // of this layer
  const std::int32_t* tables;
  const std::int32_t* table_of;
  const std::int32_t* lengths;
  float* partial;           // [sequences][kv_heads][splits][group][head_dim + 2]: sums, then maximum and weight
  std::uint32_t* finished;  // [sequences][kv_heads]
  std::int64_t block_values, head_values;
  std::int32_t heads, kv_heads, group, sequences, splits, blocks, table_stride;
  float scale;
  NewTokenArguments fresh;
};
/// Return a cudaError_t.
int start_decode_attention_64(const AttentionArguments& arguments, bool overlapped, CUstream_st* stream);
int start_decode_attention_128(const AttentionArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
