// Attention of a step's rows: those of sequences with few new tokens go to the kernel for decoding, a sequence a row;
// those of prompts to the one for prompts. Queues work; waits only for copies of its inputs. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/prefill_attention.hpp"
#include "worker/executor/cuda/device_step.hpp"

namespace penstock::worker {

/// Rows [first, first + count) of a step that are decoded, and the most tokens that one of them attends to.
struct DecodeRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::int32_t longest = 0;
  bool operator==(const DecodeRun&) const = default;
};

struct SplitRows {
  std::vector<DecodeRun> runs;
  std::vector<kernels::cuda::PrefillSequence> prompts;
};
/// Sequences of up to `decoded_max` rows become part of a run, the rest prompts.
SplitRows split_rows(const DeviceStep& step, std::uint32_t decoded_max);

struct AttentionLimits {
  std::uint32_t rows_max = 0;
  std::uint32_t sequences_max = 0;
  std::uint32_t heads = 0;
  std::uint32_t table_stride = 0;
};

class StepAttention {
 public:
  static Result<StepAttention> make(const kernels::cuda::DeviceInfo& device, const kernels::cuda::KvPool& pool,
                                    const AttentionLimits& limits, kernels::cuda::Stream stream);

  /// Decides where each row goes; for all layers of the step.
  Result<void> plan(const DeviceStep& step, kernels::cuda::Stream stream);
  /// The step's inputs in GPU memory, as DeviceStep has them.
  struct Inputs {
    const kernels::cuda::Bf16* q;
    kernels::cuda::Bf16* out;
    const std::int32_t* tables;
    const std::int32_t* table_of;
    const std::int32_t* lengths;
  };
  Result<void> queue(std::uint32_t layer, const Inputs& inputs, kernels::cuda::Stream stream) const;

 private:
  Result<void> queue_run(const DecodeRun& run, std::uint32_t layer, const Inputs& inputs,
                         kernels::cuda::Stream stream) const;
  Result<void> queue_prompts(std::uint32_t layer, const Inputs& inputs, kernels::cuda::Stream stream) const;

  kernels::cuda::KvPool pool_;
  AttentionLimits limits_;
  kernels::cuda::PrefillShape shape_;
  std::uint32_t decoded_max_ = 0;
  SplitRows rows_;
  std::uint32_t step_rows_ = 0;
  std::uint32_t tile_count_ = 0;
  std::uint32_t merge_count_ = 0;
  std::uint32_t longest_prompt_ = 0;
  kernels::cuda::DeviceBuffer workspace_, prefill_workspace_, sequences_, tiles_, merges_;
};

}  // namespace penstock::worker
