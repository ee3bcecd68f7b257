// The device side of skinny_gemm.hpp. Weights are the matrix instruction's A, tokens its B, so that a tile of 16 rows
// serves 8 tokens and padding costs no reading. A block has `row_tiles` tiles; its warps, and the blocks of its
// cluster, share the columns in chunks of 64, one warp a chunk in turn. A warp copies a chunk, 128 bytes of a row and
// 16 a lane, into a ring of its own in shared memory, `stages` chunks ahead: no barrier of the block in the loop. Odd
// rows have the halves of a chunk swapped, so that reading 16 bytes a lane meets no bank twice. Tokens come from the
// caches into registers, a chunk ahead. The columns of a chunk are taken in the order in which lanes read them, for
// weights and tokens alike, which leaves sums of products as they are.
//
// Bytes in flight: warps * stages * row_tiles * 2 KB for each block. The next kernel may start when a block has asked
// for its last weights, not before: then its first weights are read while this one adds up and ends, which takes 2 to
// 3 us. Shapes leave room in shared memory for blocks of both.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/skinny_ending.cuh"

namespace penstock::kernels::cuda::device {

constexpr int chunk_columns = 64;
/// Blocks of 32 KB a tile and two stages that a multiprocessor should hold: registers must suffice for them.
constexpr int resident_blocks(int row_tiles, int stages) {
  return row_tiles * stages == 4 ? 3 : 2;
}

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
__global__ void __launch_bounds__(warps* warp_lanes, resident_blocks(row_tiles, stages))
    skinny_gemm_kernel(const SkinnyArguments a) {
  constexpr int tokens = token_tiles * tile_tokens;
  constexpr int stage_bytes = row_tiles * 4 * piece_bytes;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float inverse[tokens];  // root mean squares, where x still has to be divided by them
  const int members = cluster_blocks(), member = cluster_rank();
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int group = lane / 4, quad = lane % 4;
  const int block = blockIdx.x / members;
  unsigned char* const ring = shared + warp * stages * stage_bytes;

  // Copies: four rows an instruction, eight lanes a row. With SwiGLU the upper half of a tile is the up projection.
  constexpr bool is_swiglu = epilogue == SkinnyEpilogue::swiglu;
  constexpr int tile_outputs = is_swiglu ? 8 : tile_rows;
  const int outputs = is_swiglu ? a.rows / 2 : a.rows;
  const int lane_row = lane / 8, lane_piece = lane % 8;
  const int first_row = block * row_tiles * tile_outputs + lane_row;
  const std::int64_t columns = a.columns;
  const std::int64_t upper_half = (is_swiglu ? outputs : 8) * columns;
  const std::uint16_t* const lane_start = a.weights + first_row * columns + lane_piece * 8;
  unsigned char* const lane_place = ring + (lane_row * 8 + (lane_piece ^ (lane_row % 2 * 4))) * 16;
  const auto fetch_weights = [&](int stage, int chunk) {
    unsigned char* to = lane_place + stage * stage_bytes;
    const std::uint16_t* from = lane_start + chunk * chunk_columns;
    const bool in_row = chunk * chunk_columns + lane_piece * 8 < a.columns;
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, row_offset = tile * tile_outputs + i % 2 * 4;
        const int row = first_row + row_offset + (is_swiglu ? 0 : half * 8);
        copy_async(to + (tile * tile_rows + i * 4) * 8 * 16, from + row_offset * columns + half * upper_half,
                   in_row && row < outputs);
      }
    }
  };
  // Parts of 32 columns, tiles of 8 tokens: this lane's eight columns of its token.
  const std::uint16_t* token_start[token_tiles];
  bool token_valid[token_tiles];
#pragma unroll
  for (int tile = 0; tile < token_tiles; ++tile) {
    const int token = tile * tile_tokens + group;
    token_valid[tile] = token < a.tokens;
    token_start[tile] = a.x + (token_valid[tile] ? token : 0) * a.x_stride + quad * 8;
  }
  const auto load_tokens = [&](uint4(&x)[2][token_tiles], int chunk) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int column = chunk * chunk_columns + part * 32;
#pragma unroll
      for (int tile = 0; tile < token_tiles; ++tile) {
        x[part][tile] = uint4{};
        if (token_valid[tile] && column + quad * 8 < a.columns) {
          x[part][tile] = *reinterpret_cast<const uint4*>(token_start[tile] + column);
        }
      }
    }
  };

  const int chunks = (a.columns + chunk_columns - 1) / chunk_columns;
  const int first = member * warps + warp, step = members * warps;
  // Weights do not depend on the kernel before this one; tokens do.
#pragma unroll
  for (int stage = 0; stage < stages; ++stage) {
    if (first + stage * step < chunks) fetch_weights(stage, first + stage * step);
    commit_copies();
  }
  if (first + stages * step >= chunks) let_successor_start();
  Ending<row_tiles, token_tiles, warps, epilogue> ending(a, block, members, member);
  ending.read_scales([](int) { return 1.0f; });
  wait_for_predecessor();
  uint4 next_x[2][token_tiles];
  load_tokens(next_x, first);
  read_inverse_roots<tokens, warps>(a, inverse);
  ending.read_inputs(a);

  float sums[row_tiles][token_tiles][4] = {};
  int stage = 0;
  for (int chunk = first; chunk < chunks; chunk += step) {
    uint4 x[2][token_tiles];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int tile = 0; tile < token_tiles; ++tile) x[part][tile] = next_x[part][tile];
    }
    load_tokens(next_x, chunk + step);
    wait_copies<stages - 1>();
    __syncwarp();
    const unsigned char* from = ring + stage * stage_bytes + group * 8 * 16;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int piece = (part * 4 + quad) ^ (group % 2 * 4);
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile) {
        const unsigned char* row = from + (tile * tile_rows * 8 + piece) * 16;
        const uint4 low = *reinterpret_cast<const uint4*>(row);
        const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * 8 * 16);
#pragma unroll
        for (int t = 0; t < token_tiles; ++t) {
          multiply_add(sums[tile][t], low.x, high.x, low.y, high.y, x[part][t].x, x[part][t].y);
          multiply_add(sums[tile][t], low.z, high.z, low.w, high.w, x[part][t].z, x[part][t].w);
        }
      }
    }
    __syncwarp();  // all lanes have read the stage
    const int next = chunk + stages * step;
    if (next < chunks) fetch_weights(stage, next);
    commit_copies();
    if (next < chunks && next + step >= chunks) let_successor_start();
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  const auto& partial = add_up_warps<row_tiles, token_tiles, warps>(shared, sums, members);
  const auto sum_of = [&](int row, int token) { return sum_of_cluster(partial, row, token, members); };
  ending.store(a, sum_of, inverse, block, gridDim.x / members);
  if (members > 1) cluster_barrier();  // nobody ends while others read its sums
}

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
cudaError_t start_skinny(const SkinnyArguments& a, unsigned cluster, bool overlapped, cudaStream_t stream) {
  const auto kernel = skinny_gemm_kernel<row_tiles, token_tiles, warps, stages, epilogue>;
  constexpr std::size_t ring = std::size_t{warps} * stages * row_tiles * 4 * piece_bytes;
  constexpr std::size_t sums = sizeof(PartialSums<warps, row_tiles * tile_rows, token_tiles * tile_tokens>);
  constexpr std::size_t shared_bytes = ring > sums ? ring : sums;
  const cudaError_t error = allow_shared(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  constexpr int block_rows = row_tiles * (epilogue == SkinnyEpilogue::swiglu ? 8 : tile_rows);
  const int outputs = epilogue == SkinnyEpilogue::swiglu ? a.rows / 2 : a.rows;
  const unsigned blocks = static_cast<unsigned>((outputs + block_rows - 1) / block_rows);
  return start_kernel(kernel, {dim3(blocks * cluster), warps * warp_lanes, shared_bytes, cluster, overlapped}, stream,
                      a);
}

}  // namespace penstock::kernels::cuda::device
