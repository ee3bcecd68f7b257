// The device side of sampler.hpp. A cluster of eight blocks has one row; each block keeps its share of it in shared
// memory, so that the row is read once. The largest logit first, then the mass of all and how many are how far below
// the largest. Truncation and the draw behind it need an order: the best few are sorted by one block, as many as
// surely hold the mass or the count that is asked for. Where no few do (flat rows), the place that reaches it is found by
// bins, of which the right one is sorted; where too many logits are equal, bit by bit, with a sum over the row for each
// two bits, which takes ten times as long. A draw without an order walks by id.
//
// 150,000 logits are 75 KB a block. Bytes read: 4 a logit, 8 if there are adjustments and logprobs.
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampler_draw.cuh"
#include "kernels/cuda/sampler_launch.hpp"

namespace penstock::kernels::cuda {
namespace device {
namespace {

/// Logprob and rank of the choice and the likeliest tokens, of the row as it came.
__device__ void score(Row& row, const SampleRow& p, std::uint32_t token, SampledToken& out) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  __syncthreads();
  if (p.adjustments_count > 0) load_row(row);
  row.scale = 1;
  row.floor = -INFINITY;
  const Wide own_best = largest_below(row, ~Wide{0});
  row.largest = logit_at(combine_cluster(row.shared.boards, row.turn, own_best, Larger()));
  const Wide own_place = place_of(row.logits[token], token);
  Wide mass = 0, higher = 0;
  for (int i = threadIdx.x; i < row.count; i += sampler_threads) {
    mass += mass_at(row.distance(row.values[i]));
    higher += place_of(row.values[i], static_cast<std::uint32_t>(row.first + i)) > own_place ? 1 : 0;
  }
  mass = combine_cluster(row.shared.boards, row.turn, mass, Add());
  higher = combine_cluster(row.shared.boards, row.turn, higher, Add());
  const float log_mass = static_cast<float>(log(static_cast<double>(mass) / mass_one));
  const auto logprob = [&](Wide place) { return (logit_at(place) - row.largest) - log_mass; };

  const int wanted = min(static_cast<int>(p.logprobs) - 1, static_cast<int>(sampler_top_max));
  const int top = min(wanted, row.vocabulary);
  Wide best = own_best;
  for (int i = 0; i < top; ++i) {
    combine_block(row.shared.boards, 0, best, Larger());
    __syncthreads();
    const Wide winner = combine_lanes(row.shared.boards.of_warp[0][lane], Larger());
    if (threadIdx.x == 0) row.shared.local_top[i] = winner;
    if (best == winner && winner != 0) best = largest_below(row, winner);
    __syncthreads();
  }
  cluster_barrier();
  if (row.rank == 0 && warp == 0) {
    constexpr int each = sampler_blocks * sampler_top_max / warp_lanes;
    Wide mine[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int at = i * warp_lanes + lane, place = at % sampler_top_max;
      mine[i] = place < top ? read_of_block(&row.shared.local_top[place], at / sampler_top_max) : 0;
    }
    Wide bound = ~Wide{0};
    for (int i = 0; i < top; ++i) {
      Wide next = 0;
#pragma unroll
      for (int j = 0; j < each; ++j) next = mine[j] < bound && mine[j] > next ? mine[j] : next;
      bound = combine_lanes(next, Larger());
      if (lane == 0) out.top[i] = {token_at(bound), logprob(bound)};
    }
    if (lane == 0) {
      out.rank = static_cast<std::uint32_t>(higher) + 1;
      out.chosen.logprob = logprob(own_place);
      out.top_count = static_cast<std::uint32_t>(top);
    }
  }
}

__global__ void __launch_bounds__(sampler_threads) sampler_kernel(const SampleArguments a) {
  extern __shared__ __align__(16) float values[];
  __shared__ SamplerShared shared;
  wait_for_predecessor();
  let_successor_start();
  const SampleRow p = a.parameters[blockIdx.y];
  const std::uint32_t place = blockIdx.y + p.result_offset;
  SampledToken& out = a.out[place];
  const int rank = cluster_rank();
  const bool is_first = rank == 0 && threadIdx.x == 0;
  if (p.mode == SampleMode::skip) {
    if (is_first) out.status = SampleStatus::skipped;
    return;
  }
  const int share = (a.vocabulary + sampler_blocks - 1) / sampler_blocks;
  const int first = min(a.vocabulary, rank * share), count = min(a.vocabulary - first, share);
  Row row{shared, values,      a.logits + static_cast<std::int64_t>(blockIdx.y) * a.vocabulary, first, count,
          rank,   a.vocabulary};
  const bool is_bad = load_row(row);
  if (p.adjustments_count > 0) {
    adjust_row(row, a.adjustments + p.adjustments_first, static_cast<int>(p.adjustments_count));
  }
  const Wide own = is_bad ? ~Wide{0} : largest_below(row, ~Wide{0});
  Wide choice = combine_cluster(shared.boards, row.turn, own, Larger());
  row.largest = logit_at(choice);
  // Adjustments may leave nothing to draw.
  if (choice == ~Wide{0} || !(fabsf(row.largest) < INFINITY)) {
    if (is_first) out.status = SampleStatus::not_finite;
    cluster_barrier();
    return;
  }
  if (p.mode == SampleMode::draw && p.top_k != 1) {
    row.scale = p.scale;
    row.floor = row.largest + p.floor_offset;
    const Census census = take_census(row);
    const bool is_ordered = p.top_k > 0 || p.top_p < 1, is_shared = p.logprobs > 0;
    choice = is_ordered ? draw_truncated(row, census, p, is_shared) : draw_by_id(row, census, p.uniform, is_shared);
  } else if (rank > 0 && p.logprobs == 0) {
    choice = 0;
  }
  // Without scores only the block that found it knows the choice.
  if (threadIdx.x == 0 && choice != 0 && (p.logprobs == 0 || rank == 0)) {
    out.status = SampleStatus::drawn;
    out.chosen.token = token_at(choice);
    if (a.drawn != nullptr) a.drawn[place] = token_at(choice);
  }
  if (p.logprobs > 0) score(row, p, token_at(choice), out);
  cluster_barrier();  // nobody ends while others read its numbers
}

}  // namespace
}  // namespace device

int start_sampler(const SampleArguments& a, bool overlapped, CUstream_st* stream) {
  const int share = (a.vocabulary + device::sampler_blocks - 1) / device::sampler_blocks;
  const std::size_t bytes = static_cast<std::size_t>(share) * sizeof(float);
  const cudaError_t error = allow_shared(device::sampler_kernel, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(device::sampler_blocks, static_cast<unsigned>(a.rows));
  const LaunchShape shape{grid, device::sampler_threads, bytes, device::sampler_blocks, overlapped};
  return start_kernel(device::sampler_kernel, shape, stream, a);
}

}  // namespace penstock::kernels::cuda
