// Between quantise.cpp and quantise.cu. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

enum class QuantiseSource : std::uint8_t { rows, swiglu, norm };

struct QuantiseArguments {
  const std::uint16_t* x;
  const std::uint16_t* weight;  // of the norm
  std::uint8_t* codes;
  float* scales;
  std::int64_t scale_stride;  // of blocks; 0: a scale a row
  std::int32_t tokens, columns;
  float epsilon;
};
/// Returns a cudaError_t.
int start_quantise(const QuantiseArguments& arguments, QuantiseSource source, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
