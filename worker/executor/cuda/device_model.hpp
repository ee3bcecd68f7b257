// A model on the GPU and the buffers of a step: queues the kernels of a forward pass. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "worker/engine/executor.hpp"
#include "worker/executor/cuda/decode_step.hpp"
#include "worker/executor/cuda/device_step.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/executor/cuda/products.hpp"
#include "worker/executor/cuda/rank_end.hpp"
#include "worker/executor/cuda/step_attention.hpp"
#include "worker/executor/cuda/step_experts.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {

struct DeviceModelLimits {
  std::uint32_t rows_max = 0;       // tokens of a step
  std::uint32_t sequences_max = 0;  // block tables
  std::uint32_t sequence_tokens_max = 0;
  std::uint32_t kv_blocks = 0;
  std::uint32_t logits_rows_max = 0;
};

/// Error: a size that the kernels don't have, by name.
Result<void> check_kernels(const ModelSpec& spec);

class DeviceModel {
 public:
  /// Errors: a size that the kernels don't have, by name; no usable GPU; too little GPU memory.
  /// `spec` and `weights` are of the rank's share.
  static Result<DeviceModel> make(const ModelSpec& spec, DeviceWeights weights, const DeviceModelLimits& limits,
                                  const RankEnd& end);

  std::uint32_t table_stride() const { return table_stride_; }
  const kernels::cuda::DeviceInfo& device() const { return device_; }
  const kernels::cuda::OwnedStream& stream() const { return stream_; }
  DeviceMemoryView pool() const { return {pool_memory_.data(), device_.number}; }
  /// For decode steps; as long as this lives and is not moved.
  DecodeModel for_decoding();
  /// Sequences that a decode step can have.
  std::uint32_t decoded_max() const;
  /// Copies one block to another, behind all work so far.
  Result<void> copy_block(BlockIndex from, BlockIndex to);
  /// Queues the step; waits only for the copies of its inputs, and for the other ranks' threads.
  Result<void> forward(const DeviceStep& step);
  /// Logits of some rows of the last step, at most logits_rows_max: [rows][vocabulary] in GPU memory, until the next
  /// call. Queued; waits only for the copy of `rows`.
  Result<const float*> queue_logits(std::span<const std::uint32_t> rows);
  /// The first `rows` of them in host memory. Waits for them.
  Result<void> download_logits(std::size_t rows, std::vector<float>& out);

 private:
  Result<void> allocate();
  Result<void> upload(const DeviceStep& step);
  /// The product that a norm is for.
  struct NextProduct {
    const kernels::cuda::DeviceBuffer& gain;
    const DeviceMatrix& weights;
  };
  /// From a layer's normed rows to those of the next.
  Result<Rows> layer(std::uint32_t index, const Rows& normed, std::uint32_t rows);
  /// A product that joins the residual path of all ranks, and the norm behind it.
  Result<Rows> join(const Product& product, const NextProduct& next, std::uint32_t rows);
  kernels::cuda::RmsNorm norm_of(const kernels::cuda::DeviceBuffer& gain, std::uint32_t rows) const;
  /// The residual path, normed for a product.
  Result<Rows> normed_for(const NextProduct& next, std::uint32_t rows);
  Result<void> attend(const DeviceLayer& weights, std::uint32_t index, const Rows& normed, std::uint32_t rows);

  ModelSpec spec_;
  DeviceModelLimits limits_;
  RankEnd end_;
  kernels::cuda::DeviceInfo device_;
  kernels::cuda::OwnedStream stream_;
  DeviceWeights weights_;
  kernels::cuda::KvPool pool_;
  kernels::cuda::DeviceBuffer pool_memory_, cos_, sin_;
  kernels::cuda::DeviceBuffer tokens_, positions_, slots_, lengths_, table_of_, tables_, pairs_, logits_rows_;
  kernels::cuda::DeviceBuffer x_, normed_, share_, qkv_, q_, attended_, activated_, last_, logits_;
  Products products_;
  StepExperts experts_;
  StepAttention attention_;
  std::uint32_t table_stride_ = 0;
};

}  // namespace penstock::worker
