// 16 bytes a thread and access; SwiGLU and embedding a piece of eight outputs a thread, block copies four pieces in
// flight a thread.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elementwise_launch.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sampler_types.hpp"

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
  std::uint32_t id = a.ids[piece / a.row_pieces];
  if (a.drawn != nullptr && (id & drawn_bit) != 0) id = a.drawn[id & ~drawn_bit];
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

__global__ void __launch_bounds__(threads) word_change_kernel(const WordChangeArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::uint32_t i = blockIdx.x * threads + threadIdx.x;
  if (i >= a.count) return;
  const std::uint32_t place = a.changes[2 * i];
  if (place < a.size) a.words[place] = static_cast<std::int32_t>(a.changes[2 * i + 1]);
}

/// The value of an e4m3 code, exactly; the code for NaN counts as 480.
__device__ inline float value_of_code(std::uint32_t code) {
  // Its seven bits as upper mantissa and lower exponent bits of a float are the value times 2^-120.
  const float small = __uint_as_float((code & 0x7fu) << 20 | (code & 0x80u) << 24);
  return small * 1.329227995784915872903807060280344576e36f;  // 2^120
}

__global__ void __launch_bounds__(threads) widen_kernel(const WidenArguments a) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t piece = piece_of_thread();
  if (piece >= a.pieces) return;
  const auto row = static_cast<int>(piece / a.row_pieces), column = static_cast<int>(piece % a.row_pieces) * 16;
  const std::int64_t place =
      a.block_columns > 0 ? std::int64_t{row / 128} * a.block_columns + column / 128 : std::int64_t{row} * a.scale_step;
  const float scale = a.scales[place];
  const uint4 codes = reinterpret_cast<const uint4*>(a.codes)[piece];
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  std::uint32_t pairs[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t two = words[i / 2] >> (i % 2 * 16);
    pairs[i] = pack(value_of_code(two & 0xffu) * scale, value_of_code(two >> 8 & 0xffu) * scale);
  }
  uint4* const y = reinterpret_cast<uint4*>(a.y) + 2 * piece;
  y[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  y[1] = {pairs[4], pairs[5], pairs[6], pairs[7]};
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

int start_widen(const WidenArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.pieces, device::threads);
  return start_kernel(device::widen_kernel, {dim3(blocks), device::threads, 0, 1, overlapped}, stream, a);
}

int start_word_changes(const WordChangeArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.count, device::threads);
  return start_kernel(device::word_change_kernel, {dim3(blocks), device::threads, 0, 1, overlapped}, stream, a);
}

}  // namespace penstock::kernels::cuda
