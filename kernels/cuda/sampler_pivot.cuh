// Finds a place in a row's order without sorting the row: logits are counted in bins of distance from the largest, the
// bin in which the place must lie is cut into finer ones until it has few logits, and those are sorted. Bins hold
// integers, so that the result depends on the row alone.
#pragma once

#include "kernels/cuda/sampler_row.cuh"
#include "kernels/cuda/sampler_sort.cuh"

namespace penstock::kernels::cuda::device {

constexpr int bins = pivot_bins, bin_depth = 3;
constexpr float bins_width = 22.5f;  // beyond, masses round to zero

enum class Amount { mass, count };

/// Bins within a bin within a bin.
struct BinPath {
  int depth = 0;
  float first[bin_depth] = {}, per_unit[bin_depth] = {bins / bins_width};
  int chosen[bin_depth] = {};

  __device__ int bin_at(int level, float distance) const {
    return max(0, min(bins - 1, static_cast<int>((distance - first[level]) * per_unit[level])));
  }
  /// Whether a logit is in all bins that were chosen so far.
  __device__ bool has(float distance) const {
    bool is_in = true;
#pragma unroll
    for (int level = 0; level < bin_depth; ++level) {
      if (level < depth) is_in = is_in && bin_at(level, distance) == chosen[level];
    }
    return is_in;
  }
  __device__ void choose(int bin) {
#pragma unroll
    for (int level = 0; level < bin_depth; ++level) {
      if (level != depth) continue;
      chosen[level] = bin;
      if (level + 1 < bin_depth) {
        first[level + 1] = first[level] + static_cast<float>(bin) / per_unit[level];
        per_unit[level + 1] = per_unit[level] * bins;
      }
    }
    ++depth;
  }
};

/// A place and what the row has from there up; place 0: it was not found this way.
struct Pivot {
  Wide place, reached;
};

/// Counts this block's logits in the bins of the path's next level.
__device__ inline void count_bins(Row& row, const BinPath& path) {
  Bins& own = row.shared.bins;
  for (int i = threadIdx.x; i < bins; i += sampler_threads) own.count[i] = own.low[i] = own.high[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    const float value = row.values[i];
    if (value < row.floor) continue;
    const float distance = row.distance(value);
    if (!path.has(distance)) continue;
    const auto mass = static_cast<std::uint32_t>(mass_at(distance));
    const int bin = path.bin_at(path.depth, distance);
    atomicAdd(&own.count[bin], 1u);
    // Fewer than 2^16 logits a block, so that neither half overflows.
    atomicAdd(&own.low[bin], mass & 0xffffu);
    atomicAdd(&own.high[bin], mass >> 16);
  }
  cluster_barrier();
}

/// The bin that reaches what is wanted, its logits in the row and in the blocks before this one, and what the bins
/// above it have. Bin -1: there is none.
__device__ inline FoundBin find_bin(Row& row, Amount amount, Wide wanted) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, bin = static_cast<int>(threadIdx.x);
  Wide own = 0;
  unsigned count = 0, before = 0;
  if (bin < bins) {
    for (int block = 0; block < sampler_blocks; ++block) {
      const unsigned in_block = read_of_block(&row.shared.bins.count[bin], block);
      count += in_block;
      before += block < row.rank ? in_block : 0;
      own += read_of_block(&row.shared.bins.low[bin], block) +
             (static_cast<Wide>(read_of_block(&row.shared.bins.high[bin], block)) << 16);
    }
    if (amount == Amount::count) own = count;
  }
  const Wide in_warp = running_sum(own, lane);
  if (lane == warp_lanes - 1) row.shared.warp_sums[warp] = in_warp;
  if (threadIdx.x == 0) row.shared.found = {-1, 0, 0, 0};
  __syncthreads();
  const Wide through = combine_lanes(lane < warp ? row.shared.warp_sums[lane] : Wide{0}, Add()) + in_warp;
  if (bin < bins && through >= wanted && through - own < wanted) {
    row.shared.found = {bin, count, before, through - own};
  }
  __syncthreads();
  const FoundBin found = row.shared.found;
  cluster_barrier();  // bins are counted anew only after all have read them
  return found;
}

/// Where the path's bin, whose logits are few, reaches what is wanted of it, on all threads.
__device__ inline Pivot sort_bin(Row& row, const BinPath& path, const FoundBin& found, Amount amount, Wide wanted) {
  gather(row, found.before, [&](float value) { return value >= row.floor && path.has(row.distance(value)); });
  cluster_barrier();
  Pivot pivot{0, 0};
  if (row.rank == 0) {
    const int count = static_cast<int>(found.count);
    sort_block(row.shared.sorted, count);
    if (amount == Amount::count) {
      pivot = {row.shared.sorted[wanted - 1], wanted};
    } else {
      const Pair pair = masses_through(row, count);
      const int index = first_reaching(row, pair, count, wanted, pivot.reached);
      if (index >= 0) pivot.place = row.shared.sorted[index];
    }
  }
  pivot.place = combine_cluster(row.shared.boards, row.turn, pivot.place, Larger());
  pivot.reached = combine_cluster(row.shared.boards, row.turn, pivot.reached, Larger());
  return pivot;
}

/// The largest place from which up the row has at least `wanted`, which is not 0.
__device__ inline Pivot find_pivot(Row& row, Amount amount, Wide wanted) {
  BinPath path;
  Wide above = 0;
  for (int level = 0; level < bin_depth; ++level) {
    count_bins(row, path);
    const FoundBin found = find_bin(row, amount, wanted - above);
    if (found.bin < 0) break;
    above += found.above;
    path.choose(found.bin);
    if (found.count > sorted_max) continue;
    Pivot pivot = sort_bin(row, path, found, amount, wanted - above);
    pivot.reached += above;
    return pivot;
  }
  return {0, 0};
}

}  // namespace penstock::kernels::cuda::device
