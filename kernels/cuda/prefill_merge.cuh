// Puts the parts together into which the keys of some new tokens were split, in their order: a warp a row.
#pragma once

#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/prefill_fetch.cuh"
#include "kernels/cuda/prefill_launch.hpp"

namespace penstock::kernels::cuda::device {

constexpr int merge_blocks = 4, merge_threads = 256;  // blocks to a tile of 128 rows

template <int head_dim>
__global__ void __launch_bounds__(merge_threads) merge_prefill_kernel(const __grid_constant__ PrefillArguments a) {
  constexpr int lane_pairs = head_dim / (2 * warp_lanes), row_floats = head_dim + 2;
  constexpr int warps = merge_threads / warp_lanes, rows = prefill_rows / merge_blocks;
  let_successor_start();
  const std::int32_t* const merge = a.merges + 4 * blockIdx.x;
  const int sequence = merge[0], first = merge[1], parts = merge[3];
  const int tokens = min(a.tile_tokens, a.sequences[4 * sequence + 1] - first);
  const int first_row = a.sequences[4 * sequence] + first;
  const std::int64_t part_floats = static_cast<std::int64_t>(a.kv_heads) * prefill_rows * row_floats;
  const float* const tile =
      a.partial + merge[2] * part_floats + static_cast<std::int64_t>(blockIdx.y) * prefill_rows * row_floats;
  const int lane = threadIdx.x % warp_lanes, begin = blockIdx.z * rows + threadIdx.x / warp_lanes;
  wait_for_predecessor();
  for (int row = begin; row < static_cast<int>(blockIdx.z + 1) * rows; row += warps) {
    const int token = row / a.group, head = static_cast<int>(blockIdx.y) * a.group + row % a.group;
    if (token >= tokens) break;
    const float* const from = tile + static_cast<std::int64_t>(row) * row_floats;
    float maximum = -INFINITY, weight = 0;
    for (int part = 0; part < parts; ++part) maximum = fmaxf(maximum, from[part * part_floats + head_dim]);
    float2 sums[lane_pairs] = {};
    for (int part = 0; part < parts; ++part) {
      const float* const values = from + part * part_floats;
      const float2 state = *reinterpret_cast<const float2*>(values + head_dim);
      // Nothing seen weighs nothing.
      const float share = state.x == -INFINITY ? 0.0f : exp2f((state.x - maximum) * a.scale);
      weight += state.y * share;
#pragma unroll
      for (int i = 0; i < lane_pairs; ++i) {
        const float2 pair = reinterpret_cast<const float2*>(values)[i * warp_lanes + lane];
        sums[i].x += pair.x * share;
        sums[i].y += pair.y * share;
      }
    }
    const float inverse = 1 / weight;
    const std::int64_t to = (static_cast<std::int64_t>(first_row + token) * a.heads + head) * (head_dim / 2);
#pragma unroll
    for (int i = 0; i < lane_pairs; ++i) {
      reinterpret_cast<std::uint32_t*>(a.out)[to + i * warp_lanes + lane] =
          pack(sums[i].x * inverse, sums[i].y * inverse);
    }
  }
}

}  // namespace penstock::kernels::cuda::device
