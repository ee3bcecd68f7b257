// Between sampler.cpp and sampler.cu. Internal.
#pragma once

#include <cstdint>

#include "kernels/cuda/sampler_types.hpp"

struct CUstream_st;

namespace penstock::kernels::cuda {

struct SampleArguments {
  const float* logits;
  const SampleRow* parameters;
  const LogitAdjustment* adjustments;
  SampledToken* out;
  std::uint32_t* drawn;
  std::int32_t rows, vocabulary;
};
/// Returns a cudaError_t.
int start_sampler(const SampleArguments& arguments, bool overlapped, CUstream_st* stream);

}  // namespace penstock::kernels::cuda
