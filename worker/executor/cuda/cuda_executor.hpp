// The Executor on one GPU, for dense Llama and Qwen models in bf16. Kernels are started one after another on one
// stream, rows of a step in groups of up to 16, each row as a sequence of its own in attention, so that prefill and
// decode are one case; sampling runs on the processor. Right before fast: long prompts are slow, and launches are not
// yet a graph. Weights, the KV pool and buffers are allocated at construction; a step allocates only what its results
// hold. Thread: the engine's, as the interface says.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/result.hpp"
#include "worker/engine/executor.hpp"
#include "worker/model/loader.hpp"

namespace penstock::worker {

struct CudaExecutorOptions {
  std::uint32_t step_tokens_max = 512;
  std::uint32_t sequences_max = 64;
  std::uint32_t sequence_tokens_max = 0;  // 0: the model card's context
  std::uint32_t kv_blocks = 0;            // of 16 tokens; at least one
};

/// Of a model loaded for one rank; quantised weights are widened to bf16. Errors: a limit that is zero or does not fit,
/// a size that the kernels don't have (by name), no usable GPU, too little GPU memory.
Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const CudaExecutorOptions& options);

}  // namespace penstock::worker
