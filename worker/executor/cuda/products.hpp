// Products of a step's rows with the model's matrices: few rows by the kernels that are bound by reading the matrix,
// more by cuBLASLt. Queues work. One thread.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/skinny_gemm.hpp"

namespace penstock::worker {

struct Product {
  const kernels::cuda::DeviceBuffer& weights;  // [rows][columns]
  const kernels::cuda::DeviceBuffer& x;        // [tokens][columns], dense
  std::uint32_t rows, columns;
  const kernels::cuda::Bf16* bias = nullptr;
};

class Products {
 public:
  /// For up to `tokens_max` tokens; `gate_up_rows` is of the matrix for multiply_swiglu(). Error: more than 16 tokens
  /// and no cuBLASLt.
  static Result<Products> make(std::uint32_t tokens_max, std::uint32_t gate_up_rows);

  /// y[tokens][rows] = x W^T, with bias, and `residual` [tokens][rows] if not null, which may be y.
  Result<void> multiply(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                        kernels::cuda::OutputType output, const kernels::cuda::DeviceBuffer* residual,
                        kernels::cuda::Stream stream);
  /// y[tokens][rows / 2] = silu(gate) * up, with gate rows first.
  Result<void> multiply_swiglu(const Product& product, std::uint32_t tokens, const kernels::cuda::DeviceBuffer& y,
                               kernels::cuda::Stream stream);

 private:
  kernels::cuda::Gemm gemm_;
  kernels::cuda::DeviceBuffer gate_up_;  // [tokens_max][gate_up_rows]
};

}  // namespace penstock::worker
