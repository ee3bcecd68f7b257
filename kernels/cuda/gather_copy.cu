// A row of blocks a piece; 16 bytes a thread and access, four of them in flight.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gather_copy_launch.hpp"
#include "kernels/cuda/launch.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int threads = 256;
constexpr int copies_in_flight = 4;
constexpr int block_words = threads * copies_in_flight;

__global__ void __launch_bounds__(threads) gather_copy_kernel(const GatherArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::uint64_t* const piece = a.pieces + 3 * blockIdx.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * block_words + threadIdx.x;
  const auto words = static_cast<std::int64_t>(piece[2] / sizeof(uint4));
  const uint4* const source = reinterpret_cast<const uint4*>(a.from + piece[0]);
  uint4* const target = reinterpret_cast<uint4*>(a.to + piece[1]);
  uint4 values[copies_in_flight];
#pragma unroll
  for (int i = 0; i < copies_in_flight; ++i) {
    if (first + i * threads < words) values[i] = source[first + i * threads];
  }
#pragma unroll
  for (int i = 0; i < copies_in_flight; ++i) {
    if (first + i * threads < words) target[first + i * threads] = values[i];
  }
}

}  // namespace
}  // namespace device

int start_gather_copy(const GatherArguments& a, bool overlapped, CUstream_st* stream) {
  const auto blocks = static_cast<unsigned>((a.words_max + device::block_words - 1) / device::block_words);
  const dim3 grid(blocks, static_cast<unsigned>(a.count));
  return start_kernel(device::gather_copy_kernel, {grid, device::threads, 0, 1, overlapped}, stream, a);
}

}  // namespace penstock::kernels::cuda
