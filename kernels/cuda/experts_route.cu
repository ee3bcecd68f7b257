// The router of many tokens: logits, softmax and the choice of experts in one kernel. A cluster of eight blocks has 64
// tokens; a block has 16 rows of the router's matrix, 128 rows further as many again, and then chooses for every eighth
// token. The matrix, 512 KB in a usual model, comes into shared memory while the kernel before this one still runs.
#include "kernels/cuda/experts_choice.cuh"
#include "kernels/cuda/experts_launch.hpp"
#include "kernels/cuda/experts_tile.cuh"
#include "kernels/cuda/launch.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int route_members = 8, route_stages = 4, route_threads = expert_warps * warp_lanes;
constexpr int route_tokens = 64, token_tiles = route_tokens / tile_tokens;
constexpr int rounds_max = experts_max / (tile_rows * route_members);
using RouteRing = TileRing<route_stages>;
using RouteSums = WarpSums<expert_warps, tile_rows, route_tokens>;

struct RouteShared {
  float scales[route_tokens];
  float logits[rounds_max][route_tokens][tile_rows];  // of this block's experts
};

__global__ void __launch_bounds__(route_threads) route_kernel(const ExpertArguments a) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ RouteShared shared;
  auto& warp_sums = *reinterpret_cast<RouteSums*>(dynamic + expert_warps * RouteRing::bytes);
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, member = cluster_rank();
  const int hidden = a.sizes.hidden, chunks = (hidden + expert_chunk - 1) / expert_chunk;
  const int tiles = (a.sizes.experts + tile_rows - 1) / tile_rows;
  const int first_token = static_cast<int>(blockIdx.x) / route_members * route_tokens;
  const int tokens = min(route_tokens, a.sizes.tokens - first_token);
  const RouteRing ring(dynamic + warp * RouteRing::bytes);

  int ahead = warp < chunks ? member : tiles, ahead_chunk = warp;
  const auto fetch_next = [&](int stage) {
    if (ahead < tiles) {
      const int row = ahead * tile_rows;
      const std::uint16_t* const low = a.router + static_cast<std::int64_t>(row) * hidden;
      ring.fetch(stage, {low, low + std::int64_t{8} * hidden, a.sizes.experts - row, a.sizes.experts - row - 8}, hidden,
                 ahead_chunk * expert_chunk);
      ahead_chunk += expert_warps;
      if (ahead_chunk >= chunks) {
        ahead_chunk = warp;
        ahead += route_members;
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int stage = 0; stage < route_stages; ++stage) fetch_next(stage);
  let_successor_start();  // which has nothing to fetch before this ends
  wait_for_predecessor();

  const std::uint16_t* rows[token_tiles];
#pragma unroll
  for (int t = 0; t < token_tiles; ++t) {
    const int token = t * tile_tokens + lane / 4;
    rows[t] = token < tokens ? a.x + static_cast<std::int64_t>(first_token + token) * hidden : nullptr;
  }
  for (int token = warp; token < tokens; token += expert_warps) {
    const float scale = scale_of(a, first_token + token);
    if (lane == 0) shared.scales[token] = scale;
  }
  int stage = 0;
  for (int tile = member; tile < tiles; tile += route_members) {
    float sums[1][token_tiles][4] = {};
    for (int chunk = warp; chunk < chunks; chunk += expert_warps) {
      uint4 x[2][token_tiles];
#pragma unroll
      for (int t = 0; t < token_tiles; ++t) load_token(x[0][t], x[1][t], rows[t], chunk * expert_chunk, hidden);
      wait_copies<route_stages - 1>();
      __syncwarp();
      ring.multiply(stage, x, sums[0]);
      __syncwarp();
      fetch_next(stage);
      stage = stage + 1 == route_stages ? 0 : stage + 1;
    }
    warp_sums.write(sums);
    __syncthreads();
    for (int i = threadIdx.x; i < tokens * tile_rows; i += route_threads) {
      const int token = i / tile_rows, row = i % tile_rows;
      shared.logits[tile / route_members][token][row] = warp_sums.sum(row, token) * shared.scales[token];
    }
    __syncthreads();
  }
  cluster_barrier();

  for (int token = warp * route_members + member; token < tokens; token += route_tokens) {
    unsigned keys[lane_experts];
#pragma unroll
    for (int i = 0; i < lane_experts; ++i) {
      const int expert = i * warp_lanes + lane, tile = expert / tile_rows;
      const float* const logit = &shared.logits[tile / route_members][token][expert % tile_rows];
      keys[i] = expert < a.sizes.experts ? key_of(read_of_block(logit, tile % route_members)) : 0;
    }
    const LaneChoice choice = choose_experts(keys, a.sizes.chosen, a.scales_all);
    if (lane >= a.sizes.chosen) continue;
    const std::int64_t place = static_cast<std::int64_t>(first_token + token) * a.sizes.chosen + lane;
    a.experts[place] = choice.expert;
    a.choice_weights[place] = choice.weight;
    if (lane == 0) a.scales[first_token + token] = shared.scales[token];
  }
  cluster_barrier();  // nobody ends while others read what it has
}

}  // namespace
}  // namespace device

int start_routing(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  using namespace device;
  constexpr std::size_t bytes = expert_warps * RouteRing::bytes + sizeof(RouteSums);
  const cudaError_t error = allow_shared(route_kernel, bytes);
  if (error != cudaSuccess) return error;
  const unsigned clusters = static_cast<unsigned>((a.sizes.tokens + route_tokens - 1) / route_tokens);
  return start_kernel(route_kernel, {dim3(clusters * route_members), route_threads, bytes, route_members, overlapped},
                      stream, a);
}

}  // namespace penstock::kernels::cuda
