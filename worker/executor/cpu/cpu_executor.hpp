// The Executor on CPU kernels. One step runs as one ThreadPool run a rank, with a barrier between operations. Greedy
// output has the same bits whatever the batch, the chunk sizes, the threads and the ranks. Memory: weights, the KV pool
// and buffers are allocated at construction from the limits; a step allocates only what its results hold.
// Thread: the engine's, as the interface says; with several ranks each has a thread of its own inside.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cpu/features.hpp"
#include "worker/engine/executor.hpp"
#include "worker/model/loader.hpp"

namespace penstock::worker {

struct CpuExecutorOptions {
  std::uint32_t step_tokens_max = 512;
  std::uint32_t sequences_max = 64;
  std::uint32_t sequence_tokens_max = 0;  // 0: the model card's context
  std::uint32_t kv_blocks = 0;            // blocks in the pool; at least one
  std::uint32_t block_tokens = 16;
  KvDtype kv_dtype = KvDtype::bf16;
  std::uint32_t threads = 1;                        // a rank
  std::vector<int> cpus;                            // pin thread i of the (single) rank to cpus[i]; empty: unpinned
  std::optional<kernels::cpu::IsaLevel> isa_level;  // absent: the best
  std::chrono::milliseconds collective_deadline{30000};
};

/// Bytes of one KV block of this model, to size the pool from a budget.
std::size_t kv_block_bytes(const ModelSpec& spec, std::uint32_t block_tokens, KvDtype dtype);

/// As many ranks as the model was loaded for. Errors: a limit that is zero or does not fit, or too little memory.
Result<std::unique_ptr<Executor>> make_cpu_executor(std::shared_ptr<const LoadedModel> model,
                                                    const CpuExecutorOptions& options);

}  // namespace penstock::worker
