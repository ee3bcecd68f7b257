// Between skinny_fp8.cpp and the generated instances of the kernel, one translation unit each. Internal.
#pragma once

#include "kernels/cuda/skinny_launch.hpp"

namespace penstock::kernels::cuda {

struct SkinnyFp8Arguments {
  SkinnyArguments product;  // without weights
  const std::uint8_t* weights;
  const float* scales;
  std::int32_t scale_step;  // between the scales of two rows: 0 or 1
  bool scales_are_blocks;
};

/// Returns a cudaError_t.
using StartSkinnyFp8 = int (*)(const SkinnyFp8Arguments&, unsigned cluster, bool overlapped, CUstream_st* stream);

/// By shape, by tiles of 8 tokens less one, plain or SwiGLU.
StartSkinnyFp8 find_skinny_fp8(std::uint32_t shape, std::uint32_t token_tiles, bool swiglu);

}  // namespace penstock::kernels::cuda
