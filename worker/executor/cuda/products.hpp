// Products of a step's rows with the model's matrices: few rows by the kernels that are bound by reading the matrix,
// more by cuBLASLt. Queues work. One thread.
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

struct Product {
  const DeviceMatrix& weights;           // [rows][columns]
  const kernels::cuda::DeviceBuffer& x;  // [tokens][columns], dense
  std::uint32_t rows, columns;
  const kernels::cuda::Bf16* bias = nullptr;
};

class Products {
 public:
  /// For up to `tokens_max` tokens; `gate_up_rows` is of the matrix for multiply_swiglu(), `widened_bytes` what the
  /// largest FP8 matrix has as bf16. Error: more than 16 tokens and no cuBLASLt.
  static Result<Products> make(std::uint32_t tokens_max, std::uint32_t gate_up_rows, std::uint64_t widened_bytes);

  /// y[tokens][rows] = x W^T, with bias, and `residual` [tokens][rows] if not null, which may be y.
  Result<void> multiply(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                        kernels::cuda::OutputType output, const kernels::cuda::DeviceBuffer* residual,
                        kernels::cuda::Start start, kernels::cuda::Stream stream);
  /// y[tokens][rows / 2] = silu(gate) * up, with gate rows first.
  Result<void> multiply_swiglu(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                               kernels::cuda::Start start, kernels::cuda::Stream stream);

 private:
  Result<kernels::cuda::GemmProduct> wide(const Product& product, std::uint32_t tokens,
                                          const kernels::cuda::DeviceBuffer& y, kernels::cuda::Start start,
                                          kernels::cuda::Stream stream) const;

  kernels::cuda::Gemm gemm_;
  kernels::cuda::DeviceBuffer gate_up_;  // [tokens_max][gate_up_rows]
  kernels::cuda::DeviceBuffer widened_;  // an FP8 matrix for the length of a product
};

}  // namespace penstock::worker
