// A block a row; every thread keeps up to four pieces of eight values in registers between the sum of squares and the
// result, so that each byte moves once. 1,024 threads at most, a piece each for rows of 8,192.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_launch.hpp"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int pieces_max = 4;  // a thread

__global__ void __launch_bounds__(1024) rms_norm_kernel(const NormArguments a) {
  const int pieces = a.columns / 8;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * pieces;
  uint4* const residual = reinterpret_cast<uint4*>(a.residual) + row;
  uint4* const y = reinterpret_cast<uint4*>(a.y) + row;
  const uint4* const weight = reinterpret_cast<const uint4*>(a.weight);

  // Weights do not depend on the kernel before this one.
  uint4 scale[pieces_max];
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) scale[i] = weight[piece];
  }
  wait_for_predecessor();
  let_successor_start();
  Eight values[pieces_max];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    values[i] = unpack(residual[piece]);
    if (a.x != nullptr) {
      const Eight added = unpack(reinterpret_cast<const uint4*>(a.x)[row + piece]);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i].value[j] += added.value[j];
      const uint4 rounded = pack(values[i]);
      residual[piece] = rounded;
      values[i] = unpack(rounded);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[i].value[j] * values[i].value[j];
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(a.columns) + a.epsilon);
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    const Eight w = unpack(scale[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].value[j] *= inverse * w.value[j];
    y[piece] = pack(values[i]);
  }
}

}  // namespace
}  // namespace device

int start_rms_norm(const NormArguments& a, bool overlapped, CUstream_st* stream) {
  return start_kernel(device::rms_norm_kernel,
                      {dim3(static_cast<unsigned>(a.tokens)), norm_threads(a), 0, 1, overlapped}, stream, a);
}

}  // namespace penstock::kernels::cuda
