// Eight 16-byte loads in flight a thread, whole blocks striding over the data.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/probe_launch.hpp"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int probe_threads = 512, loads_in_flight = 8;

__global__ void __launch_bounds__(probe_threads)
    read_probe_kernel(const uint4* data, std::int64_t pieces, float* sink) {
  let_successor_start();
  std::uint32_t folded = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * probe_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * probe_threads + threadIdx.x; i < pieces;
       i += stride * loads_in_flight) {
    uint4 loaded[loads_in_flight];
#pragma unroll
    for (int j = 0; j < loads_in_flight; ++j) {
      if (i + j * stride < pieces) {
        loaded[j] = __ldcs(data + i + j * stride);
      } else {
        loaded[j] = uint4{};
      }
    }
#pragma unroll
    for (int j = 0; j < loads_in_flight; ++j) folded ^= loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w;
  }
  wait_for_predecessor();
  if (folded == 0x5eadf00du) *sink = 1;  // so that loads are kept; practically never true
}

}  // namespace
}  // namespace device

int start_read_probe(const void* data, std::int64_t pieces, std::uint32_t blocks, float* sink, bool overlapped,
                     CUstream_st* stream) {
  return start_kernel(device::read_probe_kernel, {dim3(blocks), device::probe_threads, 0, 1, overlapped}, stream,
                      static_cast<const uint4*>(data), pieces, sink);
}

}  // namespace penstock::kernels::cuda
