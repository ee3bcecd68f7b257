// The best logits of a row, sorted by one block of its cluster, and their masses.
#pragma once

#include "kernels/cuda/sampler_row.cuh"

namespace penstock::kernels::cuda::device {

/// Sends this block's logits for which `is_in` to block 0, from place `offset` on.
template <class IsIn>
__device__ inline void gather(Row& row, unsigned offset, const IsIn& is_in) {
  const int lane = threadIdx.x % warp_lanes;
  if (threadIdx.x == 0) row.shared.cursor = 0;
  __syncthreads();
  for (int base = 0; base < row.count; base += sampler_threads) {
    const int i = base + static_cast<int>(threadIdx.x);
    const float value = i < row.count ? row.values[i] : 0.0f;
    const bool takes = i < row.count && is_in(value);
    const unsigned takers = __ballot_sync(all_lanes, takes);
    if (takers == 0) continue;
    int place = 0;
    if (lane == 0) place = atomicAdd(&row.shared.cursor, __popc(takers));
    place = __shfl_sync(all_lanes, place, 0) + __popc(takers & ((1u << lane) - 1));
    if (takes) {
      write_wide(&row.shared.sorted[offset + place], 0, place_of(value, static_cast<std::uint32_t>(row.first + i)));
    }
  }
}

/// Largest first; `count` values, up to sorted_max. Bitonic, a pair a thread.
__device__ inline void sort_block(Wide* values, int count) {
  int padded = 2;
  while (padded < count) padded *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < padded; i += sampler_threads) values[i] = 0;
  __syncthreads();
  const int pair = static_cast<int>(threadIdx.x);
  for (int run = 2; run <= padded; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      if (pair < padded / 2) {
        const int low = pair / step * 2 * step + pair % step, high = low + step;
        const Wide a = values[low], b = values[high];
        const bool is_descending = (low & run) == 0;
        if ((a < b) == is_descending) {
          values[low] = b;
          values[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

/// Masses of two neighbours of the sorted logits and of all before them.
struct Pair {
  Wide through[2];
};

__device__ inline Pair masses_through(Row& row, int count) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, at = 2 * static_cast<int>(threadIdx.x);
  const Wide first = at < count ? row.mass(logit_at(row.shared.sorted[at])) : Wide{0};
  const Wide second = at + 1 < count ? row.mass(logit_at(row.shared.sorted[at + 1])) : Wide{0};
  const Wide through = running_sum(first + second, lane);
  if (lane == warp_lanes - 1) row.shared.warp_sums[warp] = through;
  __syncthreads();
  const Wide before = combine_lanes(lane < warp ? row.shared.warp_sums[lane] : Wide{0}, Add());
  return {{before + through - second, before + through}};
}

/// The smallest index below `count` whose mass is at least `wanted`; the sum there is kept too. -1: none.
__device__ inline int first_reaching(Row& row, const Pair& pair, int count, Wide wanted, Wide& reached) {
  __shared__ int found;
  __shared__ Wide found_mass;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  const Wide before =
      pair.through[0] -
      (2 * static_cast<int>(threadIdx.x) < count ? row.mass(logit_at(row.shared.sorted[2 * threadIdx.x])) : Wide{0});
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int at = 2 * static_cast<int>(threadIdx.x) + i;
    const Wide previous = i == 0 ? before : pair.through[0];
    if (at < count && pair.through[i] >= wanted && previous < wanted) {
      found = at;
      found_mass = pair.through[i];
    }
  }
  __syncthreads();
  const int index = found;
  reached = found_mass;
  __syncthreads();
  return index;
}

}  // namespace penstock::kernels::cuda::device
