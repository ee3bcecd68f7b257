// The device side of skinny_fp8.hpp: the product of skinny_gemm.cuh with weights of one byte. A warp's chunk is 128
// columns, 128 bytes of a row as there, in the same ring. Two or three blocks of 64 to 96 KB fit a multiprocessor; no
// more are started, and each takes rows in turn, so that its ring is filled with the next ones' weights while sums of
// those before are added up.
//
// One instruction widens two e4m3 to f16, which holds their values, so products are of f16. Tokens become f16 as well,
// times 2^-4, and sums are multiplied by 2^4 at the end: of a bf16's range f16 leaves 2^-13 to 2^20 exact.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/skinny_ending.cuh"
#include "kernels/cuda/skinny_fp8_launch.hpp"

namespace penstock::kernels::cuda::device::fp8 {

constexpr int fp8_chunk_columns = 128;
/// Blocks that a multiprocessor's registers must suffice for.
constexpr int fp8_blocks_by_registers(int row_tiles, int token_tiles) {
  return row_tiles == 1 && token_tiles == 1 ? 3 : 2;
}
constexpr int multiprocessor_shared_bytes = 228 * 1024, block_shared_bytes = 1024;  // all, and what the system takes
constexpr int fp8_scale_block = 128;  // rows and columns under one scale; a chunk of columns lies in one
constexpr float token_shift = 16;     // tokens are divided by it

/// Four e4m3 as pairs of f16: the bytes 0 and 1, and 2 and 3.
__device__ inline void widen(std::uint32_t four, std::uint32_t& low, std::uint32_t& high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

/// Two bf16 as f16, divided by token_shift; what is too large for f16 becomes its largest.
__device__ inline std::uint32_t narrow(std::uint32_t pair) {
  constexpr std::uint32_t inverse_shift = 0x3d803d80u, none = 0x80008000u;  // twice 2^-4, twice -0
  std::uint32_t small, halves;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(small) : "r"(pair), "r"(inverse_shift), "r"(none));
  const float2 two = unpack(small);
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(two.y), "f"(two.x));
  return halves;
}

/// multiply_add() for f16.
__device__ inline void multiply_add_halves(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                           std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// What a lane multiplies a chunk with: for each half of the chunk its 16 columns of its token, and the scales of its
/// two rows in each tile.
template <int row_tiles, int token_tiles>
struct ChunkTokens {
  uint4 x[2][token_tiles][2];
  float scale[row_tiles][2];
};

/// Where a warp is: `block` of rows, chunk of columns.
struct ChunkPlace {
  int block, chunk;
};

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
__global__ void __launch_bounds__(warps* warp_lanes, fp8_blocks_by_registers(row_tiles, token_tiles))
    skinny_fp8_kernel(const SkinnyFp8Arguments fp8) {
  const SkinnyArguments& a = fp8.product;
  constexpr int stage_bytes = row_tiles * 4 * piece_bytes, ring_bytes = warps * stages * stage_bytes;
  constexpr int tokens = token_tiles * tile_tokens;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float inverse[tokens];  // root mean squares, where x still has to be divided by them
  const int members = cluster_blocks(), member = cluster_rank();
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int group = lane / 4, quad = lane % 4;
  unsigned char* const ring = shared + warp * stages * stage_bytes;

  constexpr bool is_swiglu = epilogue == SkinnyEpilogue::swiglu;
  constexpr int tile_outputs = is_swiglu ? 8 : tile_rows, block_outputs = row_tiles * tile_outputs;
  const int outputs = is_swiglu ? a.rows / 2 : a.rows;
  const int blocks = (outputs + block_outputs - 1) / block_outputs, block_step = gridDim.x / members;
  const int chunks = (a.columns + fp8_chunk_columns - 1) / fp8_chunk_columns;
  const ChunkPlace first{static_cast<int>(blockIdx.x) / members, member * warps + warp};
  const int step = members * warps;
  const auto next_of = [&](ChunkPlace place) {
    const bool is_same = place.chunk + step < chunks;
    return ChunkPlace{is_same ? place.block : place.block + block_step, is_same ? place.chunk + step : first.chunk};
  };
  // A warp without a chunk only helps to add up.
  const auto exists = [&](ChunkPlace place) { return place.block < blocks && first.chunk < chunks; };

  // Copies: four rows an instruction, eight lanes a row. With SwiGLU the upper half of a tile is the up projection.
  const int lane_row = lane / 8, lane_piece = lane % 8;
  const std::int64_t columns = a.columns;
  const std::int64_t upper_half = (is_swiglu ? outputs : 8) * columns;
  unsigned char* const lane_place = ring + (lane_row * 8 + (lane_piece ^ (lane_row % 2 * 4))) * 16;
  const auto fetch_weights = [&](int stage, ChunkPlace place) {
    unsigned char* to = lane_place + stage * stage_bytes;
    const int first_row = place.block * block_outputs + lane_row;
    const int column = place.chunk * fp8_chunk_columns + lane_piece * 16;
    const std::uint8_t* from = fp8.weights + first_row * columns + column;
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2, row_offset = tile * tile_outputs + i % 2 * 4;
        const int row = first_row + row_offset + (is_swiglu ? 0 : half * 8);
        copy_async(to + (tile * tile_rows + i * 4) * 8 * 16, from + row_offset * columns + half * upper_half,
                   column < a.columns && row < outputs);
      }
    }
  };
  const std::uint16_t* token_start[token_tiles];
  bool token_valid[token_tiles];
#pragma unroll
  for (int tile = 0; tile < token_tiles; ++tile) {
    const int token = tile * tile_tokens + group;
    token_valid[tile] = token < a.tokens;
    token_start[tile] = a.x + (token_valid[tile] ? token : 0) * a.x_stride + quad * 16;
  }
  using Tokens = ChunkTokens<row_tiles, token_tiles>;
  const auto load_tokens = [&](Tokens& to, ChunkPlace place) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int column = place.chunk * fp8_chunk_columns + part * 64;
#pragma unroll
      for (int tile = 0; tile < token_tiles; ++tile) {
        const bool valid = token_valid[tile] && column + quad * 16 < a.columns;
        const uint4* const from = reinterpret_cast<const uint4*>(token_start[tile] + column);
        to.x[part][tile][0] = valid ? from[0] : uint4{};
        to.x[part][tile][1] = valid ? from[1] : uint4{};
      }
    }
#pragma unroll
    for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to.scale[tile][half] = 1;
        if (!fp8.scales_are_blocks || !exists(place)) continue;
        const int row = place.block * block_outputs + tile * tile_outputs + group + half * (is_swiglu ? outputs : 8);
        const int last = is_swiglu && half == 0 ? outputs - 1 : a.rows - 1;
        to.scale[tile][half] = fp8.scales[(row < last ? row : last) / fp8_scale_block * chunks + place.chunk];
      }
    }
  };

  // Weights do not depend on the kernel before this one; tokens do.
  ChunkPlace ahead = first;
#pragma unroll
  for (int stage = 0; stage < stages; ++stage) {
    if (exists(ahead)) {
      fetch_weights(stage, ahead);
      ahead = next_of(ahead);
    }
    commit_copies();
  }
  if (!exists(ahead)) let_successor_start();
  wait_for_predecessor();
  Tokens next;
  load_tokens(next, first);
  read_inverse_roots<tokens, warps>(a, inverse);

  int stage = 0;
  for (int block = first.block; block < blocks; block += block_step) {
    Ending<row_tiles, token_tiles, warps, epilogue> ending(a, block, members, member);
    ending.read_scales(
        [&](int row) { return token_shift * (fp8.scales_are_blocks ? 1.0f : fp8.scales[row * fp8.scale_step]); });
    ending.read_inputs(a);
    float sums[row_tiles][token_tiles][4] = {};
    for (int chunk = first.chunk; chunk < chunks; chunk += step) {
      const Tokens now = next;
      load_tokens(next, next_of({block, chunk}));
      float chunk_sums[row_tiles][token_tiles][4] = {};
      wait_copies<stages - 1>();
      __syncwarp();
      const unsigned char* from = ring + stage * stage_bytes + group * 8 * 16;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int piece = (part * 4 + quad) ^ (group % 2 * 4);
        std::uint32_t x[token_tiles][4][2];  // by word of four columns
#pragma unroll
        for (int t = 0; t < token_tiles; ++t) {
          const uint4 &low = now.x[part][t][0], &high = now.x[part][t][1];
          const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
          for (int i = 0; i < 8; ++i) x[t][i / 2][i % 2] = narrow(words[i]);
        }
#pragma unroll
        for (int tile = 0; tile < row_tiles; ++tile) {
          const unsigned char* row = from + (tile * tile_rows * 8 + piece) * 16;
          const uint4 low = *reinterpret_cast<const uint4*>(row);
          const uint4 high = *reinterpret_cast<const uint4*>(row + 8 * 8 * 16);
          const std::uint32_t low_words[4] = {low.x, low.y, low.z, low.w};
          const std::uint32_t high_words[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
          for (int word = 0; word < 4; ++word) {
            std::uint32_t low_first, low_second, high_first, high_second;
            widen(low_words[word], low_first, low_second);
            widen(high_words[word], high_first, high_second);
#pragma unroll
            for (int t = 0; t < token_tiles; ++t) {
              multiply_add_halves(chunk_sums[tile][t], low_first, high_first, low_second, high_second, x[t][word][0],
                                  x[t][word][1]);
            }
          }
        }
      }
#pragma unroll
      for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
        for (int t = 0; t < token_tiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[tile][t][i] = fmaf(now.scale[tile][i / 2], chunk_sums[tile][t][i], sums[tile][t][i]);
          }
        }
      }
      __syncwarp();  // all lanes have read the stage
      if (exists(ahead)) {
        fetch_weights(stage, ahead);
        ahead = next_of(ahead);
        if (!exists(ahead)) let_successor_start();
      }
      commit_copies();
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
    if (members > 1) {  // the only block of rows
      const auto& partial = add_up_warps<row_tiles, token_tiles, warps>(shared, sums, members);
      ending.store(
          a, [&](int row, int token) { return sum_of_cluster(partial, row, token, members); }, inverse, block, blocks);
      cluster_barrier();  // nobody ends while others read its sums
      return;
    }
    using Sums = WarpSums<warps, row_tiles * tile_rows, tokens>;
    Sums& of_warps = *reinterpret_cast<Sums*>(shared + ring_bytes);
    __syncthreads();  // all have read the sums before, and what inverse_roots() left is seen
    of_warps.write(sums);
    __syncthreads();
    ending.store(a, [&](int row, int token) { return of_warps.sum(row, token); }, inverse, block, blocks);
  }
}

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
cudaError_t start_skinny_fp8(const SkinnyFp8Arguments& fp8, unsigned cluster, bool overlapped, cudaStream_t stream) {
  const auto kernel = skinny_fp8_kernel<row_tiles, token_tiles, warps, stages, epilogue>;
  constexpr std::size_t ring = std::size_t{warps} * stages * row_tiles * 4 * piece_bytes;
  constexpr std::size_t sums = sizeof(PartialSums<warps, row_tiles * tile_rows, token_tiles * tile_tokens>);
  constexpr std::size_t own_sums = sizeof(WarpSums<warps, row_tiles * tile_rows, token_tiles * tile_tokens>);
  const std::size_t shared_bytes = cluster == 1 ? ring + own_sums : ring > sums ? ring : sums;
  cudaError_t error = allow_shared(kernel, ring + own_sums > sums ? ring + own_sums : sums);
  int device = 0, multiprocessors = 0;
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) return error;
  constexpr int block_rows = row_tiles * (epilogue == SkinnyEpilogue::swiglu ? 8 : tile_rows);
  const int outputs = epilogue == SkinnyEpilogue::swiglu ? fp8.product.rows / 2 : fp8.product.rows;
  const int blocks = (outputs + block_rows - 1) / block_rows;
  constexpr int by_registers = fp8_blocks_by_registers(row_tiles, token_tiles);
  constexpr auto by_memory = static_cast<int>(multiprocessor_shared_bytes / (ring + own_sums + 2 * block_shared_bytes));
  const int resident = multiprocessors * (by_memory < by_registers ? by_memory : by_registers);
  const auto grid = static_cast<unsigned>(cluster == 1 && blocks > resident ? resident : blocks);
  return start_kernel(kernel, {dim3(grid * cluster), warps * warp_lanes, shared_bytes, cluster, overlapped}, stream,
                      fp8);
}

}  // namespace penstock::kernels::cuda::device::fp8
