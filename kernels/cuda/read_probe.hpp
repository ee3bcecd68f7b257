// Reads memory and does as little as possible with it: what a kernel that is bound by reading can reach on this device.
// For benchmarks. Any thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// Reads `bytes`, a multiple of 16, from `data` with `blocks` blocks and folds them into `*sink`, one float.
Result<void> read_probe(const void* data, std::uint64_t bytes, std::uint32_t blocks, float* sink, Start start,
                        Stream stream);

}  // namespace penstock::kernels::cuda
