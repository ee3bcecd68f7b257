// Products of a large matrix with few tokens, bound by reading the matrix: y = x W^T, with what follows in a layer done
// on the way out. Any thread; queues work on the stream.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

constexpr std::uint32_t skinny_tokens_max = 16;

enum class OutputType : std::uint8_t { bf16, f32 };

/// How the work is cut. Results differ in rounding only between two of these; for one they are the same every time.
struct SkinnyConfig {
  std::uint8_t shape = 0;    // index into skinny_shapes()
  std::uint8_t cluster = 1;  // blocks that share a row's columns: 1, 2, 4 or 8
};
struct SkinnyShape {
  std::uint8_t row_tiles;  // of 16 rows, for each block
  std::uint8_t warps;      // that share a row's columns
  std::uint8_t stages;     // of 64 columns in flight, for each warp
};
std::span<const SkinnyShape> skinny_shapes();
/// What measured best on an H200 for such a product.
SkinnyConfig choose_skinny(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens);

struct SkinnyProduct {
  const Bf16* weights = nullptr;  // [rows][columns]
  const Bf16* x = nullptr;        // [tokens][columns], rows x_stride values apart
  void* y = nullptr;              // [tokens][rows], rows y_stride values apart, of type `output`
  std::uint32_t rows = 0;         // any
  std::uint32_t columns = 0;      // a multiple of 8
  std::uint32_t tokens = 0;       // 1 to 16
  std::uint64_t x_stride = 0;     // a multiple of 8
  std::uint64_t y_stride = 0;
  OutputType output = OutputType::bf16;
  const Bf16* bias = nullptr;      // [rows], added; may be null
  const Bf16* residual = nullptr;  // [tokens][rows], rows residual_stride apart, added before rounding; may be y itself
  std::uint64_t residual_stride = 0;
  // An RMS norm between two products, without a kernel of its own. The first writes, beside y, its values times the
  // norm's gain and, for each block of rows, their sum of squares; the second takes the former as x and scales its sums
  // by the row's inverse root mean square.
  const Bf16* gain = nullptr;           // [rows]; with `gained` and `squares`
  Bf16* gained = nullptr;               // [tokens][rows], dense
  float* squares = nullptr;             // [tokens][squares_parts(rows, config)]
  const float* norm_squares = nullptr;  // [tokens][norm_parts], of rows of `columns` values
  std::uint32_t norm_parts = 0;
  float norm_epsilon = 0;
};

/// Sums of squares that a product of so many rows leaves for each token.
std::uint32_t squares_parts(std::uint32_t rows, SkinnyConfig config);

/// Bytes that must move: weights, x, y, bias and residual once each.
std::uint64_t bytes_of(const SkinnyProduct& product);

/// Errors: invalid_argument for sizes, strides or alignment, by name.
Result<void> skinny_gemm(const SkinnyProduct& product, SkinnyConfig config, Start start, Stream stream);

/// y[t][i] = silu(gate) * up, with gate row i and up row rows/2 + i of `weights`: y has rows/2 columns. No bias, no
/// residual and no gain, y in bf16.
Result<void> skinny_gemm_swiglu(const SkinnyProduct& product, SkinnyConfig config, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
