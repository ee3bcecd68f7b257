// What the sampler's blocks share: numbers of 64 bits in each other's shared memory, sums and maxima over the cluster,
// the order of logits as integers, and masses in fixed point.
#pragma once

#include "kernels/cuda/device.cuh"

namespace penstock::kernels::cuda::device {

using Wide = unsigned long long;

constexpr int sampler_blocks = 8;  // of a cluster: one row
constexpr int sampler_threads = 1024;
constexpr int sampler_warps = sampler_threads / warp_lanes;
constexpr float mass_one = 2147483648.0f;  // 2^31: of the largest logit

__device__ inline void write_wide(Wide* shared, int block, Wide value) {
  const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile(
      "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.u64 [there], %2;\n}" ::"r"(own),
      "r"(block), "l"(value)
      : "memory");
}

/// Larger logits have larger keys, equal ones are ordered by id, lowest first. -0 is 0.
__device__ inline std::uint32_t key_of(float logit) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
__device__ inline Wide place_of(float logit, std::uint32_t token) {
  return static_cast<Wide>(key_of(logit)) << 32 | static_cast<std::uint32_t>(~token);
}
__device__ inline std::uint32_t token_at(Wide place) {
  return ~static_cast<std::uint32_t>(place);
}
__device__ inline float logit_at(Wide place) {
  return logit_of(static_cast<std::uint32_t>(place >> 32));
}

/// `distance` from the largest logit, in units of the temperature.
__device__ inline Wide mass_at(float distance) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(distance * -1.4426950408889634f));
  return __float2uint_rn(power * mass_one);
}
/// The mass before which a draw by `uniform` lies.
__device__ inline Wide target_of(double uniform, Wide mass) {
  const auto target = static_cast<Wide>(uniform * static_cast<double>(mass));
  return target < mass ? target : mass - 1;
}

struct Add {
  __device__ Wide operator()(Wide a, Wide b) const { return a + b; }
};
struct Larger {
  __device__ Wide operator()(Wide a, Wide b) const { return a > b ? a : b; }
};

template <int lanes = warp_lanes, class Combine>
__device__ inline Wide combine_lanes(Wide value, Combine combine) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(all_lanes, value, step));
  }
  return value;
}

/// The sum up to and with this lane.
__device__ inline Wide running_sum(Wide value, int lane) {
#pragma unroll
  for (int step = 1; step < warp_lanes; step *= 2) {
    const Wide before = __shfl_up_sync(all_lanes, value, step);
    if (lane >= step) value += before;
  }
  return value;
}

/// Numbers that blocks show each other, in two rooms that take turns: a block writes to a room again only after all
/// have come to the barrier behind the last reading of it.
struct Boards {
  Wide of_warp[3][sampler_warps];
  Wide of_block[2][3];
};

/// One number a thread becomes one a block, in `board`, seen by the block's warp 0 only until the next barrier.
template <class Combine>
__device__ inline void combine_block(Boards& boards, int board, Wide value, Combine combine) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  value = combine_lanes(value, combine);
  if (lane == 0) boards.of_warp[board][warp] = value;
}

/// Every thread's `values` over the whole cluster, on every thread.
template <int count, class Combine>
__device__ inline void show_blocks(Boards& boards, const Wide (&values)[count], int turn, Combine combine) {
#pragma unroll
  for (int i = 0; i < count; ++i) combine_block(boards, i, values[i], combine);
  __syncthreads();
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  if (warp < count) {
    const Wide value = combine_lanes(boards.of_warp[warp][lane], combine);
    if (lane == 0) boards.of_block[turn][warp] = value;
  }
  cluster_barrier();
}

/// The number of block `lane % sampler_blocks`.
__device__ inline Wide board_of_lane(const Boards& boards, int turn, int board) {
  return read_of_block(&boards.of_block[turn][board], threadIdx.x % sampler_blocks);
}

template <class Combine>
__device__ inline Wide combine_cluster(Boards& boards, int& turn, Wide value, Combine combine) {
  const Wide values[1] = {value};
  show_blocks(boards, values, turn, combine);
  const Wide all = combine_lanes<sampler_blocks>(board_of_lane(boards, turn, 0), combine);
  turn ^= 1;
  return all;
}

}  // namespace penstock::kernels::cuda::device
