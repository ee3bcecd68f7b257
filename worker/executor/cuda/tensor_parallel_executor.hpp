// The Executor on several GPUs of one machine that share every layer: a thread a GPU, each with a device executor of
// its own that runs the same steps. Attention heads and FFN columns are cut; embedding, norms and head are whole on
// every GPU. Launch and collect are one run of the threads each. A GPU that fails or does not come fails the step, and
// every later one. Thread: the engine's, which is the first GPU's.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"

namespace penstock::worker {

/// Errors: those of make_cuda_executor(); a count that does not divide the model, or of GPUs that are not there, by
/// name.
Result<std::unique_ptr<Executor>> make_tensor_parallel_executor(std::shared_ptr<const LoadedModel> model,
                                                                const WeightSource& source,
                                                                const CudaExecutorOptions& options);

}  // namespace penstock::worker
