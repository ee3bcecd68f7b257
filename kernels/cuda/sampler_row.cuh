// One row of logits in a cluster's shared memory, and what the sampler asks of it: adjustments, the largest, masses.
#pragma once

#include <cmath>

#include "kernels/cuda/sampler_cluster.cuh"
#include "kernels/cuda/sampler_types.hpp"

namespace penstock::kernels::cuda::device {

constexpr int sorted_max = 2048;  // candidates that are sorted: two a thread
constexpr int levels = 8;         // of distance from the largest logit

constexpr int pivot_bins = 256;

/// Of this block's logits, by distance from the largest.
struct Bins {
  unsigned count[pivot_bins];
  unsigned low[pivot_bins], high[pivot_bins];  // sums of the halves of their masses
};
struct FoundBin {
  int bin;
  unsigned count, before;
  Wide above;
};

struct SamplerShared {
  Boards boards;
  Bins bins;
  FoundBin found;
  Wide sorted[sorted_max];  // of block 0
  Wide warp_sums[sampler_warps];
  Wide local_top[sampler_top_max];
  Wide choice;  // a place, in the block that found it
  int cursor;
};

/// One row on its way through a block.
struct Row {
  SamplerShared& shared;
  float* values;  // the block's own, first to first + count
  const float* logits;
  int first, count, rank, vocabulary;
  int turn = 0;
  float largest = 0, floor = 0, scale = 1;

  __device__ float distance(float value) const { return (largest - value) * scale; }
  __device__ Wide mass(float value) const { return value >= floor ? mass_at(distance(value)) : 0; }
};

/// Levels of distance have this width; the last one has all that is beyond.
constexpr float level_width = 1.5f;

__device__ inline int level_of(float distance) {
  return min(levels - 1, static_cast<int>(distance * (1 / level_width)));
}

/// Into shared memory. True on some thread if a logit is NaN or infinite.
__device__ inline bool load_row(Row& row) {
  bool is_bad = false;
#pragma unroll 8
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    const float value = row.logits[row.first + i];
    row.values[i] = value;
    is_bad |= (__float_as_uint(value) & 0x7f800000u) == 0x7f800000u;
  }
  return is_bad;
}

__device__ inline void adjust_row(Row& row, const LogitAdjustment* entries, int count) {
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += sampler_threads) {
    const LogitAdjustment entry = entries[i];
    const int place = static_cast<int>(entry.token) - row.first;
    if (place < 0 || place >= row.count) continue;
    float value = row.values[place] + entry.bias;
    if (entry.repetition != 1) value = value > 0 ? value / entry.repetition : value * entry.repetition;
    row.values[place] = value - entry.subtract;
  }
  __syncthreads();
}

/// The place of this thread's largest value below `bound`.
__device__ inline Wide largest_below(const Row& row, Wide bound) {
  Wide best = 0;
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    const Wide place = place_of(row.values[i], static_cast<std::uint32_t>(row.first + i));
    if (place < bound && place > best) best = place;
  }
  return best;
}

/// What the whole row holds at the floor and above.
struct Census {
  Wide mass;
  Wide mass_before;            // of the blocks before this one
  unsigned at[levels];         // logits at each level
  unsigned before_to[levels];  // of the blocks before this one, up to and with the level
};

__device__ inline Census take_census(Row& row) {
  Wide mass = 0, counts = 0;
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    const float value = row.values[i];
    if (value < row.floor) continue;
    const float distance = row.distance(value);
    mass += mass_at(distance);
    counts += Wide{1} << (8 * level_of(distance));  // fewer than 256 values a thread
  }
  constexpr Wide every_other = 0x00ff00ff00ff00ffull;
  const Wide values[3] = {mass, counts & every_other, (counts >> 8) & every_other};
  show_blocks(row.shared.boards, values, row.turn, Add());
  const int lane = threadIdx.x % warp_lanes, block = lane % sampler_blocks;
  const Wide block_mass = board_of_lane(row.shared.boards, row.turn, 0);
  const Wide even = board_of_lane(row.shared.boards, row.turn, 1), odd = board_of_lane(row.shared.boards, row.turn, 2);
  row.turn ^= 1;
  Census census;
  census.mass = combine_lanes<sampler_blocks>(block_mass, Add());
  census.mass_before = combine_lanes<sampler_blocks>(block < row.rank ? block_mass : Wide{0}, Add());
  unsigned before = 0;
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    const Wide own = ((level % 2 == 0 ? even : odd) >> (16 * (level / 2))) & 0xffff;
    // Both sums in one: fewer than 2^19 logits each.
    const Wide both = combine_lanes<sampler_blocks>(own | (block < row.rank ? own << 32 : 0), Add());
    census.at[level] = static_cast<unsigned>(both);
    before += static_cast<unsigned>(both >> 32);
    census.before_to[level] = before;
  }
  return census;
}

}  // namespace penstock::kernels::cuda::device
