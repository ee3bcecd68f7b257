// Makes what computes: the model's texts and card, and the executor that the settings name. At start, before the
// control port listens; throws std::runtime_error with one sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/log/logger.hpp"
#include "worker/app/config.hpp"
#include "worker/engine/executor.hpp"
#include "worker/model/loader.hpp"
#include "worker/transfer/device_pool.hpp"

namespace penstock::worker {

/// The least time that a decode step can take here, by bytes and arithmetic (worker/core/plan/roofline.hpp), for so
/// many sequences and tokens of context in all of them. Empty: nobody knows. Any thread.
using DecodeLimit = std::function<Duration(std::uint32_t sequences, std::uint64_t context_tokens)>;

struct Backend {
  std::shared_ptr<const LoadedModel> model;  // shared with the executor
  std::unique_ptr<Executor> executor;
  DecodeLimit decode_limit;
};

using LoadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

/// Any thread; `progress` is called on it. Shows a bar where standard error is a terminal. For a GPU, first says in the
/// log what will take how much of its memory, and refuses what does not fit.
LoadedModel load_backend_model(const WorkerConfig& config, const log::Logger& logger, LoadProgress progress);
/// On the thread that creates the engine: compute threads inherit from it.
Backend make_backend(const WorkerConfig& config, LoadedModel model);

/// What moves KV of a pool that a GPU has; null for one in host memory. Throws as above.
std::unique_ptr<transfer::DevicePool> make_device_pool(const KvPoolView& pool);
/// Small ones on the same GPU, for the transfer's self-test.
transfer::DevicePoolFactory device_pools_beside(const KvPoolView& pool);

}  // namespace penstock::worker
