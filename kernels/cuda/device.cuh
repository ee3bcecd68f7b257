// What device code shares: 16-byte values of eight bf16, sums over warps and blocks, asynchronous copies, the matrix
// instruction, and the two halves of programmatic dependent launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace penstock::kernels::cuda::device {

constexpr int warp_lanes = 32;
constexpr unsigned all_lanes = 0xffffffffu;

/// Before the first read of what the kernel before this one wrote, and before the first write of anything.
__device__ inline void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The next kernel may start when all blocks have come here: it fetches weights, then waits.
__device__ inline void let_successor_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Two bf16 in 32 bits, the first in the lower half.
__device__ inline float2 unpack(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
__device__ inline std::uint32_t pack(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline float to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
__device__ inline std::uint16_t to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/// Eight bf16 as floats.
struct Eight {
  float value[8];
};
__device__ inline Eight unpack(const uint4& packed) {
  const std::uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpack(pairs[i]);
    eight.value[2 * i] = two.x;
    eight.value[2 * i + 1] = two.y;
  }
  return eight;
}
__device__ inline uint4 pack(const Eight& eight) {
  return {pack(eight.value[0], eight.value[1]), pack(eight.value[2], eight.value[3]),
          pack(eight.value[4], eight.value[5]), pack(eight.value[6], eight.value[7])};
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = warp_lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(all_lanes, value, step);
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int step = warp_lanes / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(all_lanes, value, step));
  return value;
}

/// What a sum or a maximum over warps gives over a block of up to 1,024 threads, a multiple of 32, on every thread; in
/// an order that is always the same. Zero must change nothing.
template <float (*of_warp)(float)>
__device__ inline float of_block(float value) {
  __shared__ float partial[warp_lanes];
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  value = of_warp(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  const int warps = blockDim.x / warp_lanes;
  return of_warp(lane < warps ? partial[lane] : 0.0f);
}

__device__ inline float block_sum(float value) {
  return of_block<warp_sum>(value);
}
/// Of values that are not negative.
__device__ inline float block_max(float value) {
  return of_block<warp_max>(value);
}

__device__ inline float silu(float x) {
  return x / (1.0f + __expf(-x));
}

/// Copies 16 bytes to shared memory, or writes zeros if not `valid`; past the first-level cache.
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of this thread's groups are not done.
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Blocks of this cluster, and which of them this is.
__device__ inline int cluster_blocks() {
  std::uint32_t count;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return static_cast<int>(count);
}
__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
/// All threads of all blocks of the cluster; what they wrote to shared memory before is seen after.
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/// The value at `shared` in another block of the cluster: 4 or 8 bytes.
template <class Value>
__device__ inline Value read_of_block(const Value* shared, int block) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
  const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (sizeof(Value) == 8) {
    unsigned long long bits;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.u64 %0, [there];\n}"
                 : "=l"(bits)
                 : "r"(own), "r"(block)
                 : "memory");
    return __builtin_bit_cast(Value, bits);
  } else {
    unsigned bits;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.u32 %0, [there];\n}"
                 : "=r"(bits)
                 : "r"(own), "r"(block)
                 : "memory");
    return __builtin_bit_cast(Value, bits);
  }
}

/// c[16][8] += a[16][16] b[16][8], spread over a warp as the hardware has it: with g = lane / 4 and t = lane % 4, a
/// holds rows g and g + 8 at columns 2t, 2t+1 and 2t+8, 2t+9; b the same of its column g; c rows g and g + 8, columns
/// 2t, 2t+1.
__device__ inline void multiply_add(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                    std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace penstock::kernels::cuda::device
