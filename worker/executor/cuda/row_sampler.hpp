// Draws from logits that lie on the GPU, for steps of any kind. Thread: the engine's. Bounds: rows and adjustments as
// given at make().
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/sampler_types.hpp"
#include "worker/executor/cuda/sample_rows.hpp"

namespace penstock::worker {

class RowSampler {
 public:
  static Result<RowSampler> make(std::uint32_t vocabulary, std::uint32_t rows_max, std::uint32_t adjustments_max);

  /// Where a step's parameters go; every row below what queue() is told must be added or skipped.
  SampleRows& rows() { return *rows_; }
  /// Draws from rows [0, count) of `logits`; results() holds them when the stream has come there.
  Result<void> queue(const float* logits, std::uint32_t count, kernels::cuda::Stream stream);
  const kernels::cuda::SampledToken* results() const { return results_.as<kernels::cuda::SampledToken>(); }

 private:
  std::uint32_t vocabulary_ = 0;
  kernels::cuda::PinnedBuffer host_rows_, host_adjustments_, results_;
  kernels::cuda::DeviceBuffer device_rows_, device_adjustments_;
  std::unique_ptr<SampleRows> rows_;
};

}  // namespace penstock::worker
