// skinny_gemm.hpp with weights of one byte (e4m3, as checkpoints have them): weights and tokens become f16 on their way
// to the matrix units, sums are float. Any thread; queues work on the stream.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// A weight is its e4m3 value times the scale of ...
enum class Fp8Scales : std::uint8_t {
  tensor,  // all weights: one scale
  row,     // its row: [rows]
  block,   // 128 rows by 128 columns: [rows / 128][columns / 128], both rounded up
};

/// Weights [rows][columns], aligned to 16 bytes. The code for NaN, 0x7f and 0xff, makes a row NaN.
struct Fp8Weights {
  const std::uint8_t* values = nullptr;
  const float* scales = nullptr;
  Fp8Scales kind = Fp8Scales::tensor;
};

/// As skinny_shapes() and choose_skinny(), with stages of 128 columns.
std::span<const SkinnyShape> skinny_fp8_shapes();
SkinnyConfig choose_skinny_fp8(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens);
/// As squares_parts().
std::uint32_t squares_parts_fp8(std::uint32_t rows, SkinnyConfig config);

/// Bytes that must move: weights, scales, x, y, bias and residual once each.
std::uint64_t bytes_of(const SkinnyProduct& product, Fp8Scales kind);

/// As skinny_gemm() and skinny_gemm_swiglu(); `product.weights` is not used, and columns are a multiple of 16. Values
/// of x from 2^-13 to 2^20 in magnitude are exact, smaller ones are off by up to 2^-21, and larger ones count as 2^20.
/// Errors: invalid_argument for sizes, strides or alignment, by name.
Result<void> skinny_fp8(const SkinnyProduct& product, const Fp8Weights& weights, SkinnyConfig config, Start start,
                        Stream stream);
Result<void> skinny_fp8_swiglu(const SkinnyProduct& product, const Fp8Weights& weights, SkinnyConfig config,
                               Start start, Stream stream);

}  // namespace penstock::kernels::cuda
