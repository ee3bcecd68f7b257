// The sampler's draws: by id where nothing but a floor cuts the row, else by value.
#pragma once

#include "kernels/cuda/sampler_pivot.cuh"
#include "kernels/cuda/sampler_row.cuh"
#include "kernels/cuda/sampler_sort.cuh"

namespace penstock::kernels::cuda::device {

/// The first logit by id at which the row's mass passes `target`; in this block. A lane has a run of logits, of an odd
/// length, so that lanes meet no bank twice.
__device__ inline void walk_block(Row& row, Wide target) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int run = (row.count + sampler_threads - 1) / sampler_threads | 1;
  const int begin = min(row.count, static_cast<int>(threadIdx.x) * run), end = min(row.count, begin + run);
  Wide sum = 0;
  for (int i = begin; i < end; ++i) sum += row.mass(row.values[i]);
  const Wide in_warp = running_sum(sum, lane);
  if (lane == warp_lanes - 1) row.shared.warp_sums[warp] = in_warp;
  __syncthreads();
  Wide passed = combine_lanes(lane < warp ? row.shared.warp_sums[lane] : Wide{0}, Add()) + in_warp - sum;
  if (target < passed || target >= passed + sum) return;
  for (int i = begin; i < end; ++i) {
    passed += row.mass(row.values[i]);
    if (target < passed) {
      row.shared.choice = place_of(row.values[i], static_cast<std::uint32_t>(row.first + i));
      return;
    }
  }
}

/// `is_shared`: the choice is given to all blocks, else to its own; others get 0.
__device__ inline Wide draw_by_id(Row& row, const Census& census, double uniform, bool is_shared) {
  const Wide target = target_of(uniform, census.mass);
  if (threadIdx.x == 0) row.shared.choice = 0;
  __syncthreads();
  const Wide own_target = target - census.mass_before;  // wraps around where it lies before this block
  if (target >= census.mass_before) walk_block(row, own_target);
  __syncthreads();
  if (!is_shared) return row.shared.choice;
  return combine_cluster(row.shared.boards, row.turn, row.shared.choice, Larger());
}

/// The fewest levels that surely hold the mass or count which is asked for, if they are few enough to sort; else as
/// many as are, and it is not certain that they do.
struct Sorted {
  int levels;
  bool is_certain;
};

__device__ inline Sorted sorted_levels(const Census& census, const SampleRow& p) {
  unsigned total = 0;
  float outside[levels];  // the mass of the levels behind each, at most
  float sum = 0;
#pragma unroll
  for (int level = levels - 1; level >= 0; --level) {
    outside[level] = sum;
    sum += static_cast<float>(census.at[level]) * __expf(-level_width * static_cast<float>(level));
    total += census.at[level];
  }
  const float mass = static_cast<float>(census.mass) / mass_one;
  unsigned inside = 0;
  int best = 0;
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    inside += census.at[level];
    if (inside > sorted_max) return {best, false};
    best = level + 1;
    const bool is_enough = p.top_k > 0 ? inside >= p.top_k : mass - outside[level] * 1.0001f >= p.top_p * mass;
    if (is_enough || inside == total) return {best, true};
  }
  return {best, false};
}

/// Truncates and draws among the sorted logits; in block 0. 0: they are too few to tell.
__device__ inline Wide draw_sorted(Row& row, const Census& census, const SampleRow& p, int count, bool is_all) {
  sort_block(row.shared.sorted, count);
  const Pair pair = masses_through(row, count);
  int kept = count;
  Wide mass = census.mass;
  if (p.top_k > 0) {
    if (static_cast<int>(p.top_k) > count && !is_all) return 0;
    kept = min(count, static_cast<int>(p.top_k));
    __shared__ Wide kept_mass;
    if (static_cast<int>(threadIdx.x) == (kept - 1) / 2) kept_mass = pair.through[(kept - 1) % 2];
    __syncthreads();
    mass = kept_mass;
  }
  if (p.top_p < 1) {
    const auto wanted = static_cast<Wide>(ceil(static_cast<double>(p.top_p) * static_cast<double>(mass)));
    const int last = first_reaching(row, pair, kept, wanted > 0 ? wanted : 1, mass);
    if (last < 0) return 0;
    kept = last + 1;
  }
  Wide reached;
  const int chosen = first_reaching(row, pair, kept, target_of(p.uniform, mass) + 1, reached);
  return chosen < 0 ? 0 : row.shared.sorted[chosen];
}

/// The sums of `measure` over the whole row's logits from three places up.
struct Three {
  Wide sum[3];
};

template <class Measure>
__device__ inline Three measure_from(Row& row, const Wide (&places)[3], Measure measure) {
  Wide sums[3] = {};
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    const float value = row.values[i];
    const Wide place = place_of(value, static_cast<std::uint32_t>(row.first + i)), amount = measure(value);
#pragma unroll
    for (int j = 0; j < 3; ++j) sums[j] += place >= places[j] ? amount : 0;
  }
  show_blocks(row.shared.boards, sums, row.turn, Add());
  Three all;
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    all.sum[j] = combine_lanes<sampler_blocks>(board_of_lane(row.shared.boards, row.turn, j), Add());
  }
  row.turn ^= 1;
  return all;
}

/// The largest place such that what `measure` gives for the logits from there up is at least `wanted` in the whole row:
/// two bits at a time.
template <class Measure>
__device__ inline Wide descend(Row& row, Wide wanted, Measure measure) {
  Wide threshold = 0;
  const int id_bits = (33 - __clz(row.vocabulary)) / 2 * 2;
  for (int shift = 62; shift >= 0; shift -= 2) {
    if (shift >= id_bits && shift < 32) {
      threshold |= Wide{3} << shift;  // ids are kept inverted: all have these bits
      continue;
    }
    const Wide places[3] = {threshold | Wide{1} << shift, threshold | Wide{2} << shift, threshold | Wide{3} << shift};
    const Three sums = measure_from(row, places, measure);
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      if (sums.sum[j] >= wanted) threshold = places[j];
    }
  }
  return threshold;
}

__device__ inline Wide mass_from(Row& row, Wide threshold) {
  Wide sum = 0;
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    if (place_of(row.values[i], static_cast<std::uint32_t>(row.first + i)) >= threshold) sum += row.mass(row.values[i]);
  }
  return combine_cluster(row.shared.boards, row.turn, sum, Add());
}

/// By bins, or bit by bit where too many logits are equal or nearly so.
__device__ inline Pivot reach(Row& row, Amount amount, Wide wanted) {
  Pivot pivot = find_pivot(row, amount, wanted);
  if (pivot.place != 0) return pivot;
  pivot.place = amount == Amount::mass
                    ? descend(row, wanted, [&](float value) { return row.mass(value); })
                    : descend(row, wanted, [&](float value) { return value >= row.floor ? Wide{1} : Wide{0}; });
  pivot.reached = amount == Amount::mass ? mass_from(row, pivot.place) : wanted;
  return pivot;
}

/// The same where those that have to be sorted are too many, for rows of any kind.
__device__ inline Wide draw_by_pivots(Row& row, const Census& census, const SampleRow& p) {
  unsigned total = 0;
#pragma unroll
  for (int level = 0; level < levels; ++level) total += census.at[level];
  Wide mass = census.mass;
  if (p.top_k > 0 && p.top_k < total) mass = mass_from(row, reach(row, Amount::count, p.top_k).place);
  if (p.top_p < 1) {
    const auto wanted = static_cast<Wide>(ceil(static_cast<double>(p.top_p) * static_cast<double>(mass)));
    mass = reach(row, Amount::mass, wanted > 0 ? wanted : 1).reached;
  }
  return reach(row, Amount::mass, target_of(p.uniform, mass) + 1).place;
}

__device__ inline Wide draw_truncated(Row& row, const Census& census, const SampleRow& p, bool is_shared) {
  const Sorted sorted = sorted_levels(census, p);
  const int used = sorted.levels;
  Wide choice = 0;
  if (used > 0) {
    unsigned count = 0, total = 0;
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      total += census.at[level];
      if (level < used) count += census.at[level];
    }
    unsigned offset = 0;
#pragma unroll
    for (int level = 0; level < levels; ++level) offset = level == used - 1 ? census.before_to[level] : offset;
    gather(row, offset, [&](float value) { return value >= row.floor && level_of(row.distance(value)) < used; });
    cluster_barrier();
    if (row.rank == 0) choice = draw_sorted(row, census, p, static_cast<int>(count), count == total);
    if (sorted.is_certain && !is_shared) return choice;
    choice = combine_cluster(row.shared.boards, row.turn, choice, Larger());
  }
  return choice != 0 ? choice : draw_by_pivots(row, census, p);
}

}  // namespace penstock::kernels::cuda::device
