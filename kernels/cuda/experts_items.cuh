// What the kernel for experts of few tokens does before it reads their weights: what a block has in shared memory,
// waiting for other blocks, logits, choices, and the items that weights are read for.
#pragma once

#include <type_traits>

#include "kernels/cuda/experts_choice.cuh"
#include "kernels/cuda/experts_launch.hpp"
#include "kernels/cuda/experts_tile.cuh"

namespace penstock::kernels::cuda::device {
namespace {

constexpr int few_stages = 3, few_warps = 16, few_threads = few_warps * warp_lanes;
constexpr int team_warps = 4, teams = few_warps / team_warps;
constexpr int item_tokens = tile_tokens;
constexpr int logit_tokens = 4;  // whose logits are summed together
using FewRing = TileRing<few_stages>;

/// Up to eight tokens that chose one expert; a choice is token * chosen + rank.
struct FewItem {
  short expert, count;
  short choices[item_tokens];
};

/// What a block has in shared memory, in this order; sizes follow from the step.
struct FewShared {
  unsigned char* rings;
  float4* team_sums;  // [2][warps][lanes]
  float* sums;        // [choices][16]
  float* weights;     // [choices]
  float* scales;      // [tokens]
  float* logits;      // [warps][logit_tokens]
  int* counts;        // of items: all, then of each warp's experts
  unsigned* tokens;   // [experts][2], a bit for each token
  FewItem* items;     // [choices]
  short* experts;     // [choices]
  std::size_t bytes;

  __host__ __device__ FewShared(unsigned char* memory, const ExpertSizes& sizes) : rings(memory) {
    const auto choices = static_cast<std::size_t>(sizes.tokens) * static_cast<std::size_t>(sizes.chosen);
    unsigned char* next = memory + few_warps * FewRing::bytes;
    const auto take = [&next](auto*& part, std::size_t count) {
      part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(next);
      next += (count * sizeof(*part) + 15) / 16 * 16;
    };
    take(team_sums, 2 * few_threads);
    take(sums, choices * tile_rows);
    take(weights, choices);
    take(scales, static_cast<std::size_t>(sizes.tokens));
    take(logits, few_warps * logit_tokens);
    take(counts, 1 + few_warps);
    take(tokens, 2 * experts_max);
    take(items, choices);
    take(experts, choices);
    bytes = static_cast<std::size_t>(next - memory);
  }
};

/// All threads of all blocks; what they wrote before is seen after. `arrived` is 0 at first.
__device__ inline void wait_for_blocks(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    unsigned count = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
    } while (count != gridDim.x);
    __threadfence();
  }
  __syncthreads();
}

/// The logits of this block's experts for all tokens.
__device__ inline void store_logits(const ExpertArguments& a, const FewShared& shared) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, pieces = a.sizes.hidden / 8;
  const uint4* const x = reinterpret_cast<const uint4*>(a.x);
  // The last warps first: they have no part in rows of up to 2,048 columns.
  for (int token = few_warps - 1 - warp; token < a.sizes.tokens; token += few_warps) {
    const float scale = scale_of(a, token);
    if (lane == 0) shared.scales[token] = scale;
  }
  for (int expert = blockIdx.x; expert < a.sizes.experts; expert += gridDim.x) {
    const uint4* const row = reinterpret_cast<const uint4*>(a.router) + static_cast<std::int64_t>(expert) * pieces;
    for (int first = 0; first < a.sizes.tokens; first += logit_tokens) {
      float sums[logit_tokens] = {};
      for (int piece = threadIdx.x; piece < pieces; piece += few_threads) {
        const Eight weights = unpack(row[piece]);
#pragma unroll
        for (int j = 0; j < logit_tokens; ++j) {
          if (first + j >= a.sizes.tokens) break;
          const Eight values = unpack(x[static_cast<std::int64_t>(first + j) * pieces + piece]);
#pragma unroll
          for (int i = 0; i < 8; ++i) sums[j] += weights.value[i] * values.value[i];
        }
      }
#pragma unroll
      for (int j = 0; j < logit_tokens; ++j) {
        const float sum = warp_sum(sums[j]);
        if (lane == 0) shared.logits[warp * logit_tokens + j] = sum;
      }
      __syncthreads();
      const int token = first + static_cast<int>(threadIdx.x);
      if (threadIdx.x < logit_tokens && token < a.sizes.tokens) {
        float sum = 0;
        for (int i = 0; i < few_warps; ++i) sum += shared.logits[i * logit_tokens + threadIdx.x];
        a.logits[token * a.sizes.experts + expert] = sum * shared.scales[token];
      }
      __syncthreads();
    }
  }
}

/// Every block for itself, a warp a token; the first one also for whoever wants to know. A single token's items follow
/// at once, by rank.
__device__ inline void choose(const ExpertArguments& a, const FewShared& shared) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  for (int token = warp; token < a.sizes.tokens; token += few_warps) {
    unsigned keys[lane_experts];
#pragma unroll
    for (int i = 0; i < lane_experts; ++i) {
      const int expert = i * warp_lanes + lane;
      keys[i] = expert < a.sizes.experts ? key_of(__ldcg(a.logits + token * a.sizes.experts + expert)) : 0;
    }
    const LaneChoice choice = choose_experts(keys, a.sizes.chosen, a.scales_all);
    if (lane >= a.sizes.chosen) continue;
    const int place = token * a.sizes.chosen + lane;
    shared.experts[place] = static_cast<short>(choice.expert);
    shared.weights[place] = choice.weight;
    if (a.sizes.tokens == 1) {
      FewItem& item = shared.items[lane];
      item.expert = static_cast<short>(choice.expert);
      item.count = 1;
      item.choices[0] = static_cast<short>(lane);
      shared.counts[0] = a.sizes.chosen;
    }
    if (blockIdx.x > 0) continue;
    a.experts[place] = choice.expert;
    a.choice_weights[place] = choice.weight;
    if (lane == 0) a.scales[token] = shared.scales[token];
  }
  __syncthreads();
}

/// The sum over the threads before this one; `counts` gets the sum over all and what warps have.
__device__ inline int sum_before(int value, int* counts) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  int sum = value;
#pragma unroll
  for (int step = 1; step < warp_lanes; step *= 2) {
    const int before = __shfl_up_sync(all_lanes, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == warp_lanes - 1) counts[1 + warp] = sum;
  __syncthreads();
  int before = sum - value, total = 0;
#pragma unroll
  for (int i = 0; i < few_warps; ++i) {
    if (i < warp) before += counts[1 + i];
    total += counts[1 + i];
  }
  if (threadIdx.x == 0) counts[0] = total;
  return before;
}

/// Items of several tokens, by expert, then token. A thread an expert.
__device__ inline void make_items(const ExpertSizes& sizes, const FewShared& shared) {
  const int chosen = sizes.chosen, expert = threadIdx.x;
  const bool exists = expert < static_cast<int>(experts_max);
  if (exists) shared.tokens[2 * expert] = shared.tokens[2 * expert + 1] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < sizes.tokens * chosen; i += few_threads) {
    const int token = i / chosen;
    atomicOr(&shared.tokens[2 * shared.experts[i] + token / 32], 1u << token % 32);
  }
  __syncthreads();
  const unsigned bits[2] = {exists ? shared.tokens[2 * expert] : 0, exists ? shared.tokens[2 * expert + 1] : 0};
  const int count = __popc(bits[0]) + __popc(bits[1]);
  FewItem* item = shared.items + sum_before((count + item_tokens - 1) / item_tokens, shared.counts);
  int done = 0;
  for (int half = 0; half < 2; ++half) {
    for (unsigned left = bits[half]; left != 0; left &= left - 1) {
      const int token = half * 32 + __ffs(static_cast<int>(left)) - 1;
      int rank = 0;
      while (shared.experts[token * chosen + rank] != expert) ++rank;
      if (done > 0 && done % item_tokens == 0) ++item;
      if (done % item_tokens == 0) {
        item->expert = static_cast<short>(expert);
        item->count = static_cast<short>(min(item_tokens, count - done));
      }
      item->choices[done++ % item_tokens] = static_cast<short>(token * chosen + rank);
    }
  }
  __syncthreads();
}

/// The choice of this lane's token, -1 if the item has fewer, and those of the tokens whose sums the lane gets.
struct ItemChoices {
  int own, sums[2];
  __device__ explicit ItemChoices(const FewItem& item) {
    const int lane = threadIdx.x % warp_lanes, count = item.count;
    const auto choice = [&](int i) { return i < count ? item.choices[i] : -1; };
    own = choice(lane / 4);
    sums[0] = choice(lane % 4 * 2);
    sums[1] = choice(lane % 4 * 2 + 1);
  }
};

}  // namespace
}  // namespace penstock::kernels::cuda::device
