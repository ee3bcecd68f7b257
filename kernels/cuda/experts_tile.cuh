// A warp's tile of 16 rows of weights on its way through a ring of its own in shared memory, in chunks of 64 columns,
// and its product with tokens: as the skinny product has it (skinny_gemm.cuh says why), for warps that go their own
// ways.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/skinny_sums.cuh"

namespace penstock::kernels::cuda::device {

constexpr int expert_warps = 8, expert_chunk = 64;

/// Eight rows and eight more, which may lie elsewhere; `low_rows` and `high_rows` of them exist.
struct TileRows {
  const std::uint16_t* low;
  const std::uint16_t* high;
  int low_rows, high_rows;
};

template <int stages>
class TileRing {
 public:
  static constexpr int stage_bytes = 4 * piece_bytes, bytes = stages * stage_bytes;

  __device__ explicit TileRing(unsigned char* ring)
      : ring_(ring), row_(threadIdx.x % warp_lanes / 8), piece_(threadIdx.x % 8) {}

  /// Asks for columns [column, column + 64) of rows of `columns`; whole warps.
  __device__ void fetch(int stage, const TileRows& rows, std::int64_t columns, int column) const {
    unsigned char* const to = ring_ + stage * stage_bytes + (row_ * 8 + (piece_ ^ (row_ % 2 * 4))) * 16;
    const std::int64_t offset = row_ * columns + column + piece_ * 8;
    const bool in_row = column + piece_ * 8 < columns;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int within = i % 2 * 4;
      const std::uint16_t* const half = i < 2 ? rows.low : rows.high;
      copy_async(to + i * 4 * 8 * 16, half + offset + within * columns,
                 in_row && row_ + within < (i < 2 ? rows.low_rows : rows.high_rows));
    }
  }

  /// Adds the product of a stage, which has come, with tokens.
  template <int token_tiles>
  __device__ void multiply(int stage, const uint4 (&x)[2][token_tiles], float (&sums)[token_tiles][4]) const {
    const int group = threadIdx.x % warp_lanes / 4, quad = threadIdx.x % 4;
    const unsigned char* const from = ring_ + stage * stage_bytes + group * 8 * 16;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const unsigned char* const row = from + ((part * 4 + quad) ^ (group % 2 * 4)) * 16;
      const uint4 low = *reinterpret_cast<const uint4*>(row);
      const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * 8 * 16);
#pragma unroll
      for (int t = 0; t < token_tiles; ++t) {
        multiply_add(sums[t], low.x, high.x, low.y, high.y, x[part][t].x, x[part][t].y);
        multiply_add(sums[t], low.z, high.z, low.w, high.w, x[part][t].z, x[part][t].w);
      }
    }
  }

 private:
  unsigned char* ring_;
  int row_, piece_;
};

/// This lane's part of columns [column, column + 64) of its token, as multiply() wants it; zeros where `row` is null.
/// Lane l has token l / 4.
__device__ inline void load_token(uint4& first, uint4& second, const std::uint16_t* row, int column, int columns) {
  const int place = column + threadIdx.x % 4 * 8;
  first = second = uint4{};
  if (row != nullptr && place < columns) first = *reinterpret_cast<const uint4*>(row + place);
  if (row != nullptr && place + 32 < columns) second = *reinterpret_cast<const uint4*>(row + place + 32);
}

}  // namespace penstock::kernels::cuda::device
