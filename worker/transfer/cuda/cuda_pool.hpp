// A KV pool in the memory of a GPU, for transports. Processes of one machine open each other's by CUDA IPC and copy
// from them, each on streams of its own; for other peers, bytes pass through pinned host memory. In builds with
// PENSTOCK_CUDA only; worker/app and tests name it. Thread: see DevicePool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/result.hpp"
#include "worker/engine/executor.hpp"
#include "worker/transfer/device_pool.hpp"

namespace penstock::worker::transfer {

/// Of a pool that lives longer. In its kv_tail_bytes random bytes are put, by which a peer knows that it opened this
/// memory and no other. Errors: unsupported, if the system shares no GPU memory; resource_exhausted.
Result<std::unique_ptr<DevicePool>> make_cuda_pool(const DeviceMemoryView& memory, std::uint64_t bytes);
/// With memory of its own.
Result<std::unique_ptr<DevicePool>> make_cuda_pool(std::uint64_t bytes, int device);

}  // namespace penstock::worker::transfer
