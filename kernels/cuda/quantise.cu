// A block has a row, a thread up to four pieces of eight values, which stay in registers between finding the largest
// and writing codes. Half as many threads as pieces: two loads are in flight for each, and more rows at a time.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantise_launch.hpp"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int pieces_max = 4;     // a thread
constexpr int group_pieces = 16;  // of 128 columns: neighbouring lanes
constexpr float e4m3_max = 448, smallest = 1e-30f;

/// Two floats as e4m3, the first in the lower byte; what is too large becomes the largest, NaN stays NaN.
__device__ inline std::uint32_t codes_of(float first, float second) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
}
__device__ inline uint2 codes_of(const Eight& eight, float factor) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = codes_of(eight.value[2 * i] * factor, eight.value[2 * i + 1] * factor);
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

template <QuantiseSource source, bool has_groups>
__global__ void __launch_bounds__(1024) quantise_kernel(const QuantiseArguments a) {
  constexpr bool is_swiglu = source == QuantiseSource::swiglu, is_norm = source == QuantiseSource::norm;
  const int pieces = a.columns / 8;
  const std::int64_t row = blockIdx.x;
  const uint4* const x = reinterpret_cast<const uint4*>(a.x) + row * pieces * (is_swiglu ? 2 : 1);
  uint4 weight[pieces_max];  // does not depend on the kernel before this one
  if constexpr (is_norm) {
#pragma unroll
    for (int i = 0; i < pieces_max; ++i) {
      const int piece = threadIdx.x + i * blockDim.x;
      if (piece < pieces) weight[i] = reinterpret_cast<const uint4*>(a.weight)[piece];
    }
  }
  wait_for_predecessor();
  let_successor_start();
  Eight values[pieces_max];
  float largest[pieces_max] = {}, squares = 0;
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    values[i] = unpack(x[piece]);
    if constexpr (is_swiglu) {
      const Eight up = unpack(x[pieces + piece]);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i].value[j] = silu(values[i].value[j]) * up.value[j];
    }
    if constexpr (is_norm) {
      const Eight gain = unpack(weight[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        squares += values[i].value[j] * values[i].value[j];
        values[i].value[j] *= gain.value[j];
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) largest[i] = fmaxf(largest[i], fabsf(values[i].value[j]));
  }
  float inverse = 1;
  if constexpr (is_norm) inverse = rsqrtf(block_sum(squares) / static_cast<float>(a.columns) + a.epsilon);
  if constexpr (!has_groups) {
    float of_thread = 0;
#pragma unroll
    for (int i = 0; i < pieces_max; ++i) of_thread = fmaxf(of_thread, largest[i]);
    const float of_row = fmaxf(block_max(of_thread), smallest);
#pragma unroll
    for (int i = 0; i < pieces_max; ++i) largest[i] = of_row;
    // A norm's factor is the same for the row, so it changes scales only.
    if (threadIdx.x == 0) a.scales[row] = of_row * inverse / e4m3_max;
  }
  uint2* const codes = reinterpret_cast<uint2*>(a.codes) + row * pieces;
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if constexpr (has_groups) {
#pragma unroll
      for (int step = group_pieces / 2; step > 0; step /= 2) {
        largest[i] = fmaxf(largest[i], __shfl_xor_sync(all_lanes, largest[i], step));
      }
      largest[i] = fmaxf(largest[i], smallest);
      if (piece < pieces && piece % group_pieces == 0) {
        a.scales[piece / group_pieces * a.scale_stride + row] = largest[i] * inverse / e4m3_max;
      }
    }
    if (piece < pieces) codes[piece] = codes_of(values[i], e4m3_max / largest[i]);
  }
}

}  // namespace
}  // namespace device

namespace {

template <QuantiseSource source>
cudaError_t start_source(const QuantiseArguments& a, bool overlapped, cudaStream_t stream) {
  const auto pieces = static_cast<unsigned>(a.columns) / 8, half = (pieces / 2 + 31) / 32 * 32;
  const LaunchShape shape{dim3(static_cast<unsigned>(a.tokens)), half < 1024 ? half : 1024, 0, 1, overlapped};
  const auto kernel =
      a.scale_stride > 0 ? device::quantise_kernel<source, true> : device::quantise_kernel<source, false>;
  return start_kernel(kernel, shape, stream, a);
}

}  // namespace

int start_quantise(const QuantiseArguments& a, QuantiseSource source, bool overlapped, CUstream_st* stream) {
  switch (source) {
    case QuantiseSource::rows:
      return start_source<QuantiseSource::rows>(a, overlapped, stream);
    case QuantiseSource::swiglu:
      return start_source<QuantiseSource::swiglu>(a, overlapped, stream);
    case QuantiseSource::norm:
      return start_source<QuantiseSource::norm>(a, overlapped, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace penstock::kernels::cuda
