// Between gather_copy.cpp and gather_copy.cu. Internal. Returns a cudaError_t.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct GatherArguments {
  const std::uint8_t* from;
  std::uint8_t* to;
  const std::uint64_t* pieces;  // [count][from, to, bytes]
  std::int64_t words_max;       // of 16 bytes, in the longest piece
  std::int32_t count;
};
int start_gather_copy(const GatherArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
