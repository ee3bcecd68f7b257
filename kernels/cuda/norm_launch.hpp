// Between norm.cpp and norm.cu. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct NormArguments {
  std::uint16_t* residual;
  const std::uint16_t* x;
  const std::uint16_t* weight;
  std::uint16_t* y;
  std::int32_t tokens, columns;
  float epsilon;
};
/// Returns a cudaError_t.
int start_rms_norm(const NormArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
