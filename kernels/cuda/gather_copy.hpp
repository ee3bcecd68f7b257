// Many copies as one kernel: for pieces so small that starting a copy costs more than the copy. Any thread; queues work
// on the stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// Offsets and bytes are multiples of 16.
struct GatherPiece {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t bytes = 0;
};

/// to + piece.to = from + piece.from for each piece; no two of them overlap. Both sides may be memory of different
/// GPUs. Moves every byte once.
struct GatherCopy {
  const void* from = nullptr;
  void* to = nullptr;
  const GatherPiece* pieces = nullptr;  // [count]; may be pinned host memory, unchanged until the copy has ended
  std::uint32_t count = 0;              // at most 65535
  std::uint64_t piece_bytes_max = 0;    // of the longest piece
};
Result<void> gather_copy(const GatherCopy& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
