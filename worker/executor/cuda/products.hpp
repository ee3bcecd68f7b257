// Products of a step's rows with the model's matrices: few rows by the kernels that are bound by reading the matrix,
// more by cuBLASLt, with FP8 matrices in e4m3. Queues work. One thread.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "worker/executor/cuda/device_weights.hpp"

namespace penstock::worker {

/// Products of up to 16 tokens with weights of any format, in place of the product's own; cut as measured best.
Result<void> multiply_few(const kernels::cuda::SkinnyProduct& product, const DeviceMatrix& weights,
                          kernels::cuda::Start start, kernels::cuda::Stream stream);
Result<void> multiply_few_swiglu(const kernels::cuda::SkinnyProduct& product, const DeviceMatrix& weights,
                                 kernels::cuda::Start start, kernels::cuda::Stream stream);
/// Sums of squares that the former leaves for each token.
std::uint32_t squares_of_few(const DeviceMatrix& weights, std::uint32_t rows, std::uint32_t columns,
                             std::uint32_t tokens);

/// A step's rows as the product that follows takes them: bf16, or e4m3 in memory of Products.
struct Rows {
  Rows() = default;
  Rows(const kernels::cuda::DeviceBuffer& dense) : values(dense.as<kernels::cuda::Bf16>()) {}
  bool are_fp8() const { return fp8.codes != nullptr; }

  const kernels::cuda::Bf16* values = nullptr;  // [tokens][columns], dense
  kernels::cuda::Fp8Tokens fp8;
};

struct Product {
  const DeviceMatrix& weights;  // [rows][columns]
  Rows x;
  std::uint32_t rows, columns;
  const kernels::cuda::Bf16* bias = nullptr;
};

/// Tokens that y has room for, as products with blocks of scales write whole fours of them.
constexpr std::uint32_t padded_tokens(std::uint32_t tokens) {
  return (tokens + 3) / 4 * 4;
}

struct ProductLimits {
  std::uint32_t tokens_max;
  std::uint32_t gate_up_rows;   // of the matrix for multiply_swiglu()
  std::uint32_t columns_max;    // of an FP8 matrix
  std::uint64_t widened_bytes;  // what the largest FP8 matrix has as bf16; 0: there is none
};

class Products {
 public:
  /// Error: more than 16 tokens and no cuBLASLt.
  static Result<Products> make(const ProductLimits& limits, kernels::cuda::Stream stream);

  /// Rows for a product with `next`, until something else is done here: in norm.y unless they are e4m3.
  Result<Rows> norm(const kernels::cuda::RmsNorm& norm, const DeviceMatrix& next, kernels::cuda::Start start,
                    kernels::cuda::Stream stream);
  /// y[tokens][rows] = x W^T, with bias, and `residual` [tokens][rows] if not null, which may be y. Both have room for
  /// padded_tokens(tokens).
  Result<void> multiply(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                        kernels::cuda::OutputType output, const kernels::cuda::DeviceBuffer* residual,
                        kernels::cuda::Start start, kernels::cuda::Stream stream);
  /// silu(gate) * up [tokens][rows / 2], with gate rows first: for a product with `next`, as norm(), in y or e4m3.
  Result<Rows> multiply_swiglu(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                               const DeviceMatrix& next, kernels::cuda::Start start, kernels::cuda::Stream stream);

 private:
  kernels::cuda::Fp8Tokens codes(const DeviceMatrix& next) const;
  Result<kernels::cuda::GemmProduct> wide(const Product& product, std::uint32_t tokens,
                                          const kernels::cuda::DeviceBuffer& y, kernels::cuda::Start start,
                                          kernels::cuda::Stream stream) const;

  kernels::cuda::Gemm gemm_;
  kernels::cuda::DeviceBuffer gate_up_;         // [tokens_max][gate_up_rows]
  kernels::cuda::DeviceBuffer widened_;         // an FP8 matrix for the length of a product
  kernels::cuda::DeviceBuffer codes_, scales_;  // e4m3 rows for the length of a product
};

}  // namespace penstock::worker
