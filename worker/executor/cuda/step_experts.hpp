// Layers of experts of a step's rows: few rows by the kernels that are bound by reading the matrices, more by those
// that sort rows by expert. Owns what lies between their kernels. Queues work. One thread.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/experts.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {

class StepExperts {
 public:
  /// For up to `rows_max` rows of a step; nothing for a dense model.
  static Result<StepExperts> make(const ModelSpec& spec, std::uint32_t rows_max, kernels::cuda::Stream stream);

  /// `step` says what x, y and norms are; the rest of it is filled in here.
  Result<void> queue(kernels::cuda::ExpertStep step, const DeviceLayer& layer, kernels::cuda::Start start,
                     kernels::cuda::Stream stream) const;
  /// The same for normed rows, without a norm behind.
  Result<void> queue(const kernels::cuda::Bf16* x, const kernels::cuda::DeviceBuffer& y, std::uint32_t rows,
                     const DeviceLayer& layer, kernels::cuda::Start start, kernels::cuda::Stream stream) const;

 private:
  kernels::cuda::ExpertShape shape_;
  kernels::cuda::ExpertScaling scaling_ = kernels::cuda::ExpertScaling::all;
  std::uint32_t rows_max_ = 0;
  kernels::cuda::DeviceBuffer choices_, activated_, outputs_;
};

}  // namespace penstock::worker
