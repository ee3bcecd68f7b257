// Between prefill_attention.cpp and the generated instances of the kernel. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct PrefillArguments {
  const std::uint16_t* q;
  std::uint16_t* out;
  const std::uint16_t* pool;
  const std::int32_t* tables;
  const std::int32_t* sequences;  // [...][4] as PrefillSequence
  const std::int32_t* tiles;      // [tile_count][5] as PrefillTile
  const std::int32_t* merges;     // [merge_count][4] as PrefillMerge
  float* partial;                 // [parts][kv_heads][128 rows][head_dim + 2]: sums, then maximum and weight
  std::uint32_t* counters;        // [2], zero between launches: items taken, blocks that found none
  std::int64_t pool_rows;         // of head_dim values, all blocks
  std::int32_t rows, heads, kv_heads, group, tile_tokens, tile_count, merge_count, heads_at_once, table_stride, blocks,
      layers, layer;
  float scale;
};

/// Return a cudaError_t.
int start_prefill_attention_64(const PrefillArguments& arguments, unsigned blocks, bool overlapped,
                               CUstream_st* stream);
int start_prefill_attention_128(const PrefillArguments& arguments, unsigned blocks, bool overlapped,
                                CUstream_st* stream);

}  // namespace penstock::kernels::cuda
