// Rotary positions for one head of one token by a warp. A lane has head_dim / 64 pairs of the rotation: neighbours in
// the first half of the head and the same ones in the second, so that rotation needs no exchange and each access of a
// warp is one run.
#pragma once

#include "kernels/cuda/device.cuh"

namespace penstock::kernels::cuda::device {

template <int pairs>
struct HalfHead {
  float value[pairs];
};

template <int pairs>
__device__ inline HalfHead<pairs> read_half(const std::uint16_t* from) {
  HalfHead<pairs> half;
  if constexpr (pairs == 2) {
    const float2 two = unpack(*reinterpret_cast<const std::uint32_t*>(from));
    half.value[0] = two.x;
    half.value[1] = two.y;
  } else {
    half.value[0] = to_float(*from);
  }
  return half;
}

template <int pairs>
__device__ inline void write_half(std::uint16_t* to, const HalfHead<pairs>& half) {
  if constexpr (pairs == 2) {
    *reinterpret_cast<std::uint32_t*>(to) = pack(half.value[0], half.value[1]);
  } else {
    *to = to_bf16(half.value[0]);
  }
}

template <int pairs>
__device__ inline void normalise(HalfHead<pairs>& low, HalfHead<pairs>& high, const std::uint16_t* weight, int first,
                                 float epsilon) {
  constexpr int half = pairs * warp_lanes;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < pairs; ++i) squares += low.value[i] * low.value[i] + high.value[i] * high.value[i];
  const float inverse = rsqrtf(warp_sum(squares) / (2 * half) + epsilon);
  const HalfHead<pairs> low_weight = read_half<pairs>(weight + first);
  const HalfHead<pairs> high_weight = read_half<pairs>(weight + half + first);
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    low.value[i] *= inverse * low_weight.value[i];
    high.value[i] *= inverse * high_weight.value[i];
  }
}

/// cos and sin of a lane's pairs at one position.
template <int pairs>
struct Angles {
  float cos[pairs], sin[pairs];
};

template <int pairs>
__device__ inline Angles<pairs> read_angles(const float* cos, const float* sin, std::int64_t position, int first) {
  constexpr int half = pairs * warp_lanes;
  Angles<pairs> angles;
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    angles.cos[i] = cos[position * half + first + i];
    angles.sin[i] = sin[position * half + first + i];
  }
  return angles;
}

template <int pairs>
__device__ inline void rotate(HalfHead<pairs>& low, HalfHead<pairs>& high, const Angles<pairs>& angles) {
#pragma unroll
  for (int i = 0; i < pairs; ++i) {
    const float x = low.value[i], y = high.value[i];
    low.value[i] = x * angles.cos[i] - y * angles.sin[i];
    high.value[i] = y * angles.cos[i] + x * angles.sin[i];
  }
}

}  // namespace penstock::kernels::cuda::device
