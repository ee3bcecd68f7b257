// Between elementwise.cpp and elementwise.cu. Internal. All return a cudaError_t.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct SwiGluArguments {
  const std::uint16_t* x;
  std::uint16_t* y;
  std::int64_t pieces;  // of eight outputs, over all rows
  std::int32_t row_pieces;
};
int start_swiglu(const SwiGluArguments& arguments, bool overlapped, CUstream_st* stream);

struct EmbeddingArguments {
  const std::uint16_t* table;
  const std::uint32_t* ids;
  const std::uint32_t* drawn;
  std::uint16_t* y;
  std::int64_t pieces;
  std::int32_t row_pieces;
  std::uint32_t vocabulary;
};
int start_embedding(const EmbeddingArguments& arguments, bool overlapped, CUstream_st* stream);

struct BlockCopyArguments {
  std::uint16_t* pool;
  const std::uint32_t* pairs;  // from, to
  std::int64_t block_pieces;   // of 16 bytes
  std::int32_t count;
  std::uint32_t blocks;
};
int start_block_copy(const BlockCopyArguments& arguments, bool overlapped, CUstream_st* stream);

struct WordChangeArguments {
  std::int32_t* words;
  std::uint64_t size;
  const std::uint32_t* changes;  // place, value
  std::uint32_t count;
};
struct WidenArguments {
  const std::uint8_t* codes;
  const float* scales;
  std::uint16_t* y;
  std::int64_t pieces;  // of 16 weights
  std::int32_t row_pieces;
  std::int32_t scale_step;     // between the scales of two rows: 0 or 1
  std::int32_t block_columns;  // scales of 128 x 128 in a row of blocks; 0: no blocks
};
int start_widen(const WidenArguments& arguments, bool overlapped, CUstream_st* stream);

int start_word_changes(const WordChangeArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
