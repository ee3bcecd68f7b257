// 16 bytes a thread and access; SwiGLU and embedding a piece of eight outputs a thread, block copies four pieces in
// flight a thread.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elementwise_launch.hpp"
#include "kernels/cuda/launch.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int threads = 256;
constexpr int copies_in_flight = 4;

__device__ inline std::int64_t piece_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
}

__global__ void __launch_bounds__(threads) swiglu_kernel(const SwiGluArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t piece = piece_of_thread();
  if (piece >= a.pieces) return;
  const std::int64_t row = piece / a.row_pieces;
  const uint4* const x = reinterpret_cast<const uint4*>(a.x) + piece + row * a.row_pieces;
  Eight gate = unpack(x[0]);
  const Eight up = unpack(x[a.row_pieces]);
#pragma unroll
  for (int i = 0; i < 8; ++i) gate.value[i] = silu(gate.value[i]) * up.value[i];
  reinterpret_cast<uint4*>(a.y)[piece] = pack(gate);
}

__global__ void __launch_bounds__(threads) embedding_kernel(const EmbeddingArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t piece = piece_of_thread();
  if (piece >= a.pieces) return;
  const std::uint32_t id = a.ids[piece / a.row_pieces];
  const std::int64_t from = static_cast<std::int64_t>(id) * a.row_pieces + piece % a.row_pieces;
  const uint4 zeros{};
  reinterpret_cast<uint4*>(a.y)[piece] = id < a.vocabulary ? reinterpret_cast<const uint4*>(a.table)[from] : zeros;
}

__global__ void __launch_bounds__(threads) block_copy_kernel(const BlockCopyArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::uint32_t from = a.pairs[2 * blockIdx.y], to = a.pairs[2 * blockIdx.y + 1];
  if (from >= a.blocks || to >= a.blocks) return;
  const uint4* const source = reinterpret_cast<const uint4*>(a.pool) + from * a.block_pieces;
  uint4* const target = reinterpret_cast<uint4*>(a.pool) + to * a.block_pieces;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * threads * copies_in_flight + threadIdx.x;
  uint4 pieces[copies_in_flight];
#pragma unroll
  for (int i = 0; i < copies_in_flight; ++i) {
    if (first + i * threads < a.block_pieces) pieces[i] = source[first + i * threads];
  }
#pragma unroll
  for (int i = 0; i < copies_in_flight; ++i) {
    if (first + i * threads < a.block_pieces) target[first + i * threads] = pieces[i];
  }
}

unsigned blocks_for(std::int64_t pieces, int each) {
  return static_cast<unsigned>((pieces + each - 1) / each);
}

}  // namespace
}  // namespace device

int start_swiglu(const SwiGluArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.pieces, device::threads);
  return start_kernel(device::swiglu_kernel, {dim3(blocks), device::threads, 0, 1, overlapped}, stream, a);
}

int start_embedding(const EmbeddingArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.pieces, device::threads);
  return start_kernel(device::embedding_kernel, {dim3(blocks), device::threads, 0, 1, overlapped}, stream, a);
}

int start_block_copy(const BlockCopyArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.block_pieces, device::threads * device::copies_in_flight);
  const dim3 grid(blocks, static_cast<unsigned>(a.count));
  return start_kernel(device::block_copy_kernel, {grid, device::threads, 0, 1, overlapped}, stream, a);
}

}  // namespace penstock::kernels::cuda
