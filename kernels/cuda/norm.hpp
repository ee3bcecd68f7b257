// RMS norm of rows, with the residual added first. Bound by starting and by its bytes: everything is read and written
// once. Any thread; queues work on the stream.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// residual = residual + x if x is given, rounded to bf16; y = residual / sqrt(mean(residual^2) + epsilon) * weight,
/// from the rounded residual, in float until y.
struct RmsNorm {
  Bf16* residual = nullptr;      // [tokens][columns], dense; read only if x is null
  const Bf16* x = nullptr;       // [tokens][columns], dense; may be null
  const Bf16* weight = nullptr;  // [columns]
  Bf16* y = nullptr;             // [tokens][columns], dense; may be x
  std::uint32_t tokens = 0;      // 0: nothing to do
  std::uint32_t columns = 0;     // a multiple of 8, at most 32,768
  float epsilon = 1e-5f;
};
std::uint64_t bytes_of(const RmsNorm& norm);
/// invalid_argument for `kernel`: a shape that rms_norm() refuses.
Result<void> check_norm(const RmsNorm& norm, std::string_view kernel);
Result<void> rms_norm(const RmsNorm& norm, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
