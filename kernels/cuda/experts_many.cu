// Experts of many tokens. A block for each expert looks through all choices and writes its own in order of tokens, with
// no other's help: 256 KB from the second-level cache for 8,192 tokens of eight choices. Then a block multiplies a tile
// of up to 128 choices of one expert with 128 rows of its weights on the matrix units, two groups of four warps with 64
// choices each. Which expert a tile belongs to is found from where experts begin, so that the grid depends on sizes
// only; blocks that have no tile end at once. Blocks that follow each other share a tile's tokens, and those after them
// the expert's weights, in the second-level cache. Rows come by 16-byte copies, since tokens of an expert lie anywhere,
// two chunks of 64 columns ahead; two blocks share a multiprocessor, so that one multiplies while the other waits.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/experts_launch.hpp"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr int order_threads = 1024;
constexpr int many_tile = 128, many_chunk = 64, many_stages = 3, many_threads = 2 * group_threads;
constexpr int operand_bytes = many_tile * many_chunk * 2, many_stage_bytes = 2 * operand_bytes;

__global__ void __launch_bounds__(order_threads) order_kernel(const ExpertArguments a) {
  __shared__ int warp_equal[warp_lanes], warp_less[warp_lanes];
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, expert = blockIdx.x;
  wait_for_predecessor();
  let_successor_start();
  const int choices = a.sizes.tokens * a.sizes.chosen, share = (choices + order_threads - 1) / order_threads;
  const int begin = min(static_cast<int>(threadIdx.x) * share, choices), end = min(begin + share, choices);
  int equal = 0, less = 0;
  for (int i = begin; i < end; ++i) {
    const int other = a.experts[i];
    equal += other == expert;
    less += other < expert;
  }
  int upto = equal;
#pragma unroll
  for (int step = 1; step < warp_lanes; step *= 2) {
    const int before = __shfl_up_sync(all_lanes, upto, step);
    if (lane >= step) upto += before;
    less += __shfl_xor_sync(all_lanes, less, step);
  }
  if (lane == warp_lanes - 1) {
    warp_equal[warp] = upto;
    warp_less[warp] = less;
  }
  __syncthreads();
  int first = 0, place = upto - equal, all_equal = 0;
#pragma unroll
  for (int i = 0; i < order_threads / warp_lanes; ++i) {
    first += warp_less[i];
    if (i < warp) place += warp_equal[i];
    all_equal += warp_equal[i];
  }
  if (threadIdx.x == 0) {
    a.first[expert] = first;
    if (expert == a.sizes.experts - 1) a.first[expert + 1] = first + all_equal;
  }
  place += first;
  for (int i = begin; i < end && equal > 0; ++i) {
    if (a.experts[i] == expert) a.order[place++] = i;
  }
}

/// Up to 128 choices of one expert: places [begin, begin + rows) of the order. No rows: there is no such tile.
struct ManyTile {
  int expert, begin, rows;
};

/// The whole warp; all get the same.
__device__ inline ManyTile find_tile(const ExpertArguments& a, int index) {
  const int lane = threadIdx.x % warp_lanes, share = (a.sizes.experts + warp_lanes - 1) / warp_lanes;
  const int begin = min(lane * share, a.sizes.experts), end = min(begin + share, a.sizes.experts);
  const auto tiles_of = [&](int expert) { return (a.first[expert + 1] - a.first[expert] + many_tile - 1) / many_tile; };
  int tiles = 0;
  for (int expert = begin; expert < end; ++expert) tiles += tiles_of(expert);
  int upto = tiles;
#pragma unroll
  for (int step = 1; step < warp_lanes; step *= 2) {
    const int before = __shfl_up_sync(all_lanes, upto, step);
    if (lane >= step) upto += before;
  }
  const bool is_here = index >= upto - tiles && index < upto;
  const unsigned here = __ballot_sync(all_lanes, is_here);
  ManyTile tile{};
  if (here == 0) return tile;
  if (is_here) {
    int within = index - (upto - tiles);
    tile.expert = begin;
    while (within >= tiles_of(tile.expert)) within -= tiles_of(tile.expert++);
    tile.begin = a.first[tile.expert] + within * many_tile;
    tile.rows = min(many_tile, a.first[tile.expert + 1] - tile.begin);
  }
  const int source = __ffs(static_cast<int>(here)) - 1;
  tile.expert = __shfl_sync(all_lanes, tile.expert, source);
  tile.begin = __shfl_sync(all_lanes, tile.begin, source);
  tile.rows = __shfl_sync(all_lanes, tile.rows, source);
  return tile;
}

/// Rows of the two operands that a thread copies 16 bytes of: every 32nd; null ones are zeros.
struct ManyRows {
  static constexpr int count = many_tile * 8 / many_threads;
  const std::uint16_t* tokens[count];
  const std::uint16_t* weights[count];
};

__device__ inline void fetch_chunk(unsigned char* stage, const ManyRows& rows, const void* anywhere, int chunk,
                                   int columns) {
  const int row = threadIdx.x / 8, piece = threadIdx.x % 8, column = chunk * many_chunk + piece * 8;
  unsigned char* const to = stage + row * 128 + (piece ^ row % 8) * 16;
  const bool in_row = column < columns;
  const auto copy = [&](unsigned char* place, const std::uint16_t* from) {
    const bool valid = in_row && from != nullptr;
    copy_async(place, valid ? from + column : anywhere, valid);
  };
#pragma unroll
  for (int i = 0; i < ManyRows::count; ++i) {
    copy(to + i * 32 * 128, rows.tokens[i]);
    copy(to + operand_bytes + i * 32 * 128, rows.weights[i]);
  }
}

/// sums[64 choices of the group][128 rows of weights], as multiply() has them.
__device__ inline void multiply_chunks(unsigned char* shared, const ManyRows& rows, const void* anywhere, int columns,
                                       bool takes_part, float (&sums)[64]) {
  const int chunks = (columns + many_chunk - 1) / many_chunk, group = threadIdx.x / group_threads;
#pragma unroll
  for (int stage = 0; stage < many_stages - 1; ++stage) {
    if (stage < chunks) fetch_chunk(shared + stage * many_stage_bytes, rows, anywhere, stage, columns);
    commit_copies();
  }
  int stage = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_copies<many_stages - 2>();
    publish_to_products();
    __syncthreads();  // the chunk is there for all, and all have used the one before
    const int next = chunk + many_stages - 1, next_stage = stage == 0 ? many_stages - 1 : stage - 1;
    if (next < chunks) fetch_chunk(shared + next_stage * many_stage_bytes, rows, anywhere, next, columns);
    commit_copies();
    if (takes_part) {
      const std::uint32_t weights = shared_address(shared + stage * many_stage_bytes + operand_bytes);
      const std::uint32_t tokens = shared_address(shared + stage * many_stage_bytes) + group * operand_bytes / 2;
      begin_products();
#pragma unroll
      for (int step = 0; step < many_chunk / 16; ++step) {
        multiply(sums, operand(tokens + step * 32, 1024, 0), operand(weights + step * 32, 1024, 0),
                 chunk > 0 || step > 0);
      }
      commit_products();
      wait_products<0>();
      hold(sums);
    }
    stage = stage + 1 == many_stages ? 0 : stage + 1;
  }
}

__global__ void __launch_bounds__(many_threads, 2) many_gate_up_kernel(const ExpertArguments a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int hidden = a.sizes.hidden, ffn = a.sizes.ffn, first_output = blockIdx.x * (many_tile / 2);
  wait_for_predecessor();
  let_successor_start();
  const ManyTile tile = find_tile(a, blockIdx.y);
  if (tile.rows == 0) return;
  ManyRows rows;
  const std::uint16_t* const weights = a.gate_up + std::int64_t{2} * ffn * hidden * tile.expert;
#pragma unroll
  for (int i = 0; i < ManyRows::count; ++i) {
    const int row = threadIdx.x / 8 + i * 32, output = first_output + row % 64;
    const int token = row < tile.rows ? a.order[tile.begin + row] / a.sizes.chosen : -1;
    rows.tokens[i] = token < 0 ? nullptr : a.x + static_cast<std::int64_t>(token) * hidden;
    rows.weights[i] = output < ffn ? weights + (static_cast<std::int64_t>(row / 64 * ffn) + output) * hidden : nullptr;
  }
  const int lane = threadIdx.x % warp_lanes, first_row = threadIdx.x / warp_lanes * 16 + lane / 4;
  float sums[64];
  const bool takes_part = threadIdx.x / group_threads * 64 < tile.rows;
  multiply_chunks(shared, rows, a.x, hidden, takes_part, sums);
  if (!takes_part) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8;
    if (row >= tile.rows) continue;
    const float scale = a.scales[a.order[tile.begin + row] / a.sizes.chosen];
    std::uint16_t* const to = a.activated + static_cast<std::int64_t>(tile.begin + row) * ffn;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int output = first_output + i * 8 + lane % 4 * 2;
      float two[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        two[j] = silu(sums[4 * i + 2 * half + j] * scale) * (sums[4 * (i + 8) + 2 * half + j] * scale);
      }
      if (output < ffn) *reinterpret_cast<std::uint32_t*>(to + output) = pack(two[0], two[1]);
    }
  }
}

__global__ void __launch_bounds__(many_threads, 2) many_down_kernel(const ExpertArguments a) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int hidden = a.sizes.hidden, ffn = a.sizes.ffn, first_output = blockIdx.x * many_tile;
  wait_for_predecessor();
  let_successor_start();
  const ManyTile tile = find_tile(a, blockIdx.y);
  if (tile.rows == 0) return;
  ManyRows rows;
  const std::uint16_t* const weights = a.down + static_cast<std::int64_t>(hidden) * ffn * tile.expert;
#pragma unroll
  for (int i = 0; i < ManyRows::count; ++i) {
    const int row = threadIdx.x / 8 + i * 32, output = first_output + row;
    rows.tokens[i] = row < tile.rows ? a.activated + static_cast<std::int64_t>(tile.begin + row) * ffn : nullptr;
    rows.weights[i] = output < hidden ? weights + static_cast<std::int64_t>(output) * ffn : nullptr;
  }
  const int lane = threadIdx.x % warp_lanes, first_row = threadIdx.x / warp_lanes * 16 + lane / 4;
  float sums[64];
  const bool takes_part = threadIdx.x / group_threads * 64 < tile.rows;
  multiply_chunks(shared, rows, a.x, ffn, takes_part, sums);
  if (!takes_part) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8;
    if (row >= tile.rows) continue;
    std::uint16_t* const to = a.outputs + static_cast<std::int64_t>(a.order[tile.begin + row]) * hidden;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int output = first_output + i * 8 + lane % 4 * 2;
      if (output >= hidden) continue;
      *reinterpret_cast<std::uint32_t*>(to + output) = pack(sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1]);
    }
  }
}

/// A block a token, a thread eight values at a time.
__global__ void __launch_bounds__(many_threads) combine_kernel(const ExpertArguments a) {
  const int pieces = a.sizes.hidden / 8, chosen = a.sizes.chosen;
  const std::int64_t first_choice = static_cast<std::int64_t>(blockIdx.x) * chosen;
  wait_for_predecessor();
  let_successor_start();
  const uint4* const outputs = reinterpret_cast<const uint4*>(a.outputs) + first_choice * pieces;
  uint4* const y = reinterpret_cast<uint4*>(a.y) + static_cast<std::int64_t>(blockIdx.x) * pieces;
  for (int piece = threadIdx.x; piece < pieces; piece += many_threads) {
    const Eight residual = unpack(y[piece]);
    Eight sum{};
#pragma unroll 4
    for (int rank = 0; rank < chosen; ++rank) {
      const Eight output = unpack(outputs[rank * pieces + piece]);
      const float weight = a.choice_weights[first_choice + rank];
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.value[i] += weight * output.value[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] += residual.value[i];
    y[piece] = pack(sum);
  }
}

template <class Kernel>
cudaError_t start_many(Kernel* kernel, const ExpertArguments& a, int outputs, int tile_outputs, bool overlapped,
                       cudaStream_t stream) {
  constexpr std::size_t bytes = std::size_t{many_stages} * many_stage_bytes;
  cudaError_t error = check_hopper();
  if (error == cudaSuccess) error = allow_shared(kernel, bytes);
  if (error != cudaSuccess) return error;
  const int choices = a.sizes.tokens * a.sizes.chosen;
  const int tiles = min(choices, (choices + many_tile - 1) / many_tile + a.sizes.experts);
  const dim3 grid(static_cast<unsigned>((outputs + tile_outputs - 1) / tile_outputs), static_cast<unsigned>(tiles));
  return start_kernel(kernel, {grid, many_threads, bytes, 1, overlapped}, stream, a);
}

}  // namespace
}  // namespace device

int start_order(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  return start_kernel(device::order_kernel,
                      {dim3(static_cast<unsigned>(a.sizes.experts)), device::order_threads, 0, 1, overlapped}, stream,
                      a);
}

int start_many_gate_up(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  return device::start_many(device::many_gate_up_kernel, a, a.sizes.ffn, device::many_tile / 2, overlapped, stream);
}

int start_many_down(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  return device::start_many(device::many_down_kernel, a, a.sizes.hidden, device::many_tile, overlapped, stream);
}

int start_combine(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  return start_kernel(device::combine_kernel,
                      {dim3(static_cast<unsigned>(a.sizes.tokens)), device::many_threads, 0, 1, overlapped}, stream, a);
}

}  // namespace penstock::kernels::cuda
