// How experts are chosen from a token's logits: a warp a token, as many rounds as experts are chosen. Each lane has the
// logits of every 32nd expert.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/expert_limits.hpp"

namespace penstock::kernels::cuda::device {

constexpr int lane_experts = experts_max / warp_lanes;

/// Larger logits have larger keys; that of NaN is the smallest. 0 is nobody's.
__device__ inline unsigned key_of(float logit) {
  if (logit != logit) return 1;
  const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 equals 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(unsigned key) {
  if (key <= 1) return __uint_as_float(0x7fffffffu);
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/// What the lane with this rank gets.
struct LaneChoice {
  int expert;
  float weight;
};

/// keys[i] is of expert 32 i + lane, 0 if there is none. Whole warps.
__device__ inline LaneChoice choose_experts(unsigned (&keys)[lane_experts], int chosen, bool scales_all) {
  const int lane = threadIdx.x % warp_lanes;
  LaneChoice choice{};
  float logit = 0, sum = 0, most = 0;
  for (int rank = 0; rank < chosen; ++rank) {
    unsigned best = 0;
    int expert = 0;
#pragma unroll
    for (int i = 0; i < lane_experts; ++i) {
      if (keys[i] <= best) continue;
      best = keys[i];
      expert = i * warp_lanes + lane;
    }
    const unsigned largest = __reduce_max_sync(all_lanes, best);
    const int first = __reduce_min_sync(all_lanes, best == largest ? expert : static_cast<int>(experts_max));
    if (rank == 0) {
      most = logit_of(largest);
      if (scales_all) {
#pragma unroll
        for (int i = 0; i < lane_experts; ++i) sum += keys[i] == 0 ? 0.0f : __expf(logit_of(keys[i]) - most);
        sum = warp_sum(sum);
      }
    }
#pragma unroll
    for (int i = 0; i < lane_experts; ++i) {
      if (i * warp_lanes + lane == first) keys[i] = 0;
    }
    if (lane != rank) continue;
    choice.expert = first;
    logit = logit_of(largest);
  }
  const float share = lane < chosen ? __expf(logit - most) : 0.0f;
  if (!scales_all) sum = warp_sum(share);
  choice.weight = share / sum;
  return choice;
}

/// One over the root mean square of a token's x, where it still has to be divided by it, else 1. Whole warps.
template <class Arguments>
__device__ inline float scale_of(const Arguments& a, std::int64_t token) {
  if (a.norm_squares == nullptr) return 1;
  float squares = 0;
#pragma unroll 4
  for (int i = threadIdx.x % warp_lanes; i < a.norm_parts; i += warp_lanes) {
    squares += a.norm_squares[token * a.norm_parts + i];
  }
  return rsqrtf(warp_sum(squares) / static_cast<float>(a.sizes.hidden) + a.norm_epsilon);
}

}  // namespace penstock::kernels::cuda::device
