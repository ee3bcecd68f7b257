// The Executor on one GPU: of a whole model, or one rank's part of every step, with sums over the ranks inside. Every
// rank has all logits and draws the same tokens. Thread: one, the engine's or the rank's, with the GPU as its current
// device in every call.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/executor/cuda/rank_end.hpp"

namespace penstock::worker {

/// `share` is the model's spec as this GPU has it; see spec_of_share().
Result<std::unique_ptr<Executor>> make_device_executor(std::shared_ptr<const LoadedModel> model, const ModelSpec& share,
                                                       DeviceWeights weights, const CudaExecutorOptions& options,
                                                       const RankEnd& end);

}  // namespace penstock::worker
