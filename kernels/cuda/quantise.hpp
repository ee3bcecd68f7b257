// Tokens as e4m3, for products with FP8 weights (gemm.hpp): as they are, behind an RMS norm or behind SwiGLU. Bound by
// bytes. Any thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/skinny_fp8.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// A value is its e4m3 value times the scale of its token, or of 128 columns of its token.
struct Fp8Tokens {
  std::uint8_t* codes = nullptr;    // [tokens][columns], dense, aligned to 16 bytes
  float* scales = nullptr;          // row: [tokens]; block: [columns / 128][fp8_scale_stride(tokens)]
  Fp8Scales kind = Fp8Scales::row;  // row or block
};
/// Places of a group's scales: products with blocks have a multiple of 4 tokens.
constexpr std::uint64_t fp8_scale_stride(std::uint32_t tokens) {
  return (std::uint64_t{tokens} + 3) / 4 * 4;
}
constexpr std::uint64_t fp8_scale_count(std::uint32_t tokens, std::uint32_t columns, Fp8Scales kind) {
  return fp8_scale_stride(tokens) * (kind == Fp8Scales::block ? columns / 128 : 1);
}

/// The scale is the largest magnitude over 448, the largest e4m3, so that a value is off by up to 1/16 of itself, and
/// by up to 2^-19 of the largest if it is small. A token with NaN or infinity becomes NaN where it, or all, was.
/// All: tokens 0 do nothing. Errors: invalid_argument for sizes, by name.
struct QuantisedRows {
  const Bf16* x = nullptr;  // [tokens][columns], dense
  Fp8Tokens y;
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;  // a multiple of 16, with blocks of 128; at most 32,768
};
std::uint64_t bytes_of(const QuantisedRows& rows);
Result<void> quantise_rows(const QuantisedRows& work, Start start, Stream stream);
/// What swiglu() gives for x [tokens][2 * columns], gate first, before it is rounded.
Result<void> quantise_swiglu(const QuantisedRows& work, Start start, Stream stream);
/// What rms_norm() gives before it is rounded, without `norm.x` and `norm.y`.
Result<void> quantise_norm(const RmsNorm& norm, const Fp8Tokens& y, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
