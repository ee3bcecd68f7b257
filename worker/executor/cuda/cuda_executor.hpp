// The Executor on GPUs of one machine, for Llama and Qwen models in bf16: on one, or with every layer cut among 2, 4 or
// 8 that reach each other's memory; models with experts (Mixtral, Qwen3-MoE) on one. A step in which up to 256
// sequences (16 of several GPUs) compute a token each is a decode step: one graph from the token ids to the tokens
// drawn. Every other step starts its kernels one after another. Tokens are drawn on the GPU; prompt tokens are scored
// on the processor. Weights, the KV pool, graphs and buffers are made at construction; a step allocates only what its
// results hold. Thread: the engine's, as the interface says.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "worker/engine/executor.hpp"
#include "worker/executor/cuda/decode_runner.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/model/loader.hpp"

namespace penstock::worker {

struct CudaExecutorOptions {
  std::uint32_t step_tokens_max = 512;
  std::uint32_t sequences_max = 64;
  std::uint32_t sequence_tokens_max = 0;  // 0: the model card's context
  std::uint32_t kv_blocks = 0;            // of 16 tokens; at least one
  CudaLaunch launch = CudaLaunch::graph;
  std::uint32_t tensor_parallel = 1;  // GPUs: 1, 2, 4 or 8
  std::vector<int> devices;           // their numbers; empty: the first ones
  std::chrono::milliseconds collective_deadline{10000};
};

struct CudaDevice {
  std::string name;
  std::uint64_t memory_bytes = 0, memory_free_bytes = 0;
};
/// The GPU that an executor would use. Error: unavailable, why there is none.
Result<CudaDevice> find_cuda_device();

/// Of a model loaded for one rank; quantised weights are widened to bf16. Errors: a limit that is zero or does not fit,
/// a size that the kernels don't have (by name), no usable GPU, too little GPU memory.
Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const CudaExecutorOptions& options);
/// With weights from elsewhere; of the model only its spec is read.
Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const WeightSource& source, const CudaExecutorOptions& options);

}  // namespace penstock::worker
