// Between skinny_gemm.cpp and the generated instances of the kernel, one translation unit each: no header of the
// library here, so that instances compile quickly. Internal.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace penstock::kernels::cuda {

struct SkinnyArguments {
  const std::uint16_t* weights;
  const std::uint16_t* x;
  const std::uint16_t* bias;
  const std::uint16_t* residual;
  std::uint16_t* y;
  float* y_float;         // instead of y
  std::uint16_t* gained;  // y times `gain`, for a norm that ends in the next product; may be null
  const std::uint16_t* gain;
  float* squares;             // [tokens][blocks of rows]: of what was stored, with `gained`
  const float* norm_squares;  // [tokens][norm_parts]: of a row whose x has had its gain only; may be null
  std::int64_t x_stride, y_stride, residual_stride;
  std::int32_t rows, columns, tokens, norm_parts;
  float norm_epsilon;
};

/// Returns a cudaError_t.
using StartSkinny = int (*)(const SkinnyArguments&, unsigned cluster, bool overlapped, CUstream_st* stream);

/// By shape, by tiles of 8 tokens less one, plain or SwiGLU.
StartSkinny find_skinny(std::uint32_t shape, std::uint32_t token_tiles, bool swiglu);

}  // namespace penstock::kernels::cuda
