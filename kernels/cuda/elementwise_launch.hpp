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

}  // namespace penstock::kernels::cuda
