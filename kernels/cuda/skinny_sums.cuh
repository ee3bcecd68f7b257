// What skinny products of all weight formats share: their tiles, and how the sums of warps, then of the blocks of a
// cluster, are added in a fixed order.
#pragma once

#include "kernels/cuda/device.cuh"

namespace penstock::kernels::cuda::device {

constexpr int tile_rows = 16, tile_tokens = 8;
constexpr int piece_bytes = warp_lanes * 16;  // what a warp copies with one instruction

enum class SkinnyEpilogue { plain, swiglu };

/// What the warps of a block have; element (row, token) of the block's tile.
template <int warps, int rows, int tokens>
struct WarpSums {
  float of_warp[warps][tokens][rows];

  template <int row_tiles, int token_tiles>
  __device__ void write(const float (&sums)[row_tiles][token_tiles][4]) {
    const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
    const int group = lane / 4, quad = lane % 4;
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
      for (int t = 0; t < token_tiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = tile * tile_rows + group + (i / 2) * 8, token = t * tile_tokens + quad * 2 + i % 2;
          of_warp[warp][token][row] = sums[tile][t][i];
        }
      }
    }
  }
  __device__ float sum(int row, int token) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += of_warp[w][token][row];
    return sum;
  }
};

/// Adds up what the warps of a block, then the blocks of a cluster have; element (row, token) of the block's tile.
template <int warps, int rows, int tokens>
struct PartialSums {
  WarpSums<warps, rows, tokens> of_warps;
  float of_block[tokens][rows];
};

/// All threads of all `members` blocks of the cluster, when no copy that is still needed is under way; `shared` is what
/// the ring of copies was in. The sums of this block, which others may read until the next barrier of the cluster.
template <int row_tiles, int token_tiles, int warps>
__device__ inline auto& add_up_warps(unsigned char* shared, const float (&sums)[row_tiles][token_tiles][4],
                                     int members) {
  constexpr int rows = row_tiles * tile_rows, tokens = token_tiles * tile_tokens;
  using Sums = PartialSums<warps, rows, tokens>;
  wait_copies<0>();
  __syncthreads();  // the ring becomes the partial sums

  Sums& partial = *reinterpret_cast<Sums*>(shared);
  partial.of_warps.write(sums);
  __syncthreads();
  for (int i = threadIdx.x; i < rows * tokens; i += warps * warp_lanes) {
    partial.of_block[i / rows][i % rows] = partial.of_warps.sum(i % rows, i / rows);
  }
  if (members > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  return partial;
}

template <int warps, int rows, int tokens>
__device__ inline float sum_of_cluster(const PartialSums<warps, rows, tokens>& partial, int row, int token,
                                       int members) {
  if (members == 1) return partial.of_block[token][row];
  float sum = 0;
  for (int other = 0; other < members; ++other) {
    sum += read_of_block(&partial.of_block[token][row], other);
  }
  return sum;
}

}  // namespace penstock::kernels::cuda::device
