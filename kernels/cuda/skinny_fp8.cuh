// The device side of skinny_fp8.hpp: the product of skinny_gemm.cuh with weights of one byte. A warp's chunk is 128
// columns, 128 bytes of a row as there, in the same ring. Two or three blocks of 64 to 96 KB fit a multiprocessor. What
// bounds it is instructions as much as bytes: 270 for 2 KB with one tile of rows, of the 400 that a multiprocessor can
// start while it reads them, and start and end of a block besides. With two tiles tokens are paired half as often.
//
// Hopper has no instruction that widens e4m3 to bf16, and f16 does not hold every token's values. The seven bits below
// the sign, moved into the upper mantissa and lower exponent bits of a bf16, are the weight times 2^-120, subnormals
// too. Tokens are multiplied by 2^60, sums by 2^60 at the end; both are exact, and sums stay far from the ends of a
// float's range. Bytes are widened in pairs two apart; tokens are paired the same way, which changes no sum.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/skinny_fp8_launch.hpp"
#include "kernels/cuda/skinny_fp8_sums.cuh"

namespace penstock::kernels::cuda::device::fp8 {

constexpr int fp8_chunk_columns = 128;
constexpr int fp8_scale_block = 128;  // rows and columns under one scale; a chunk of columns lies in one
constexpr float half_of_shift = 1.152921504606846976e18f;  // 2^60

/// Four e4m3 as pairs of bf16, 2^-120 times their values: the bytes 0 and 2, and 1 and 3.
__device__ inline void widen(std::uint32_t four, std::uint32_t& even, std::uint32_t& odd) {
  constexpr std::uint32_t magnitude = 0x07f007f0u, sign = 0x80008000u;
  even = ((four << 4) & magnitude) | ((four << 8) & sign);
  odd = ((four >> 4) & magnitude) | (four & sign);
}

/// Four bf16 in two words, times 2^60 and paired as the weights are.
__device__ inline void pair_tokens(std::uint32_t first, std::uint32_t second, std::uint32_t& even, std::uint32_t& odd) {
  constexpr std::uint32_t shift = 0x5d805d80u, none = 0x80008000u;  // twice 2^60, twice -0
  const auto times_shift = [](std::uint32_t pair) {
    std::uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(pair), "r"(shift), "r"(none));
    return product;
  };
  even = times_shift(__byte_perm(first, second, 0x5410));
  odd = times_shift(__byte_perm(first, second, 0x7632));
}

/// What a lane multiplies a chunk with: for each half of the chunk its 16 columns of its token, and the scales of its
/// two rows in each tile.
template <int row_tiles, int token_tiles>
struct ChunkTokens {
  uint4 x[2][token_tiles][2];
  float scale[row_tiles][2];
};

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
__global__ void __launch_bounds__(warps* warp_lanes, row_tiles == 1 && token_tiles == 1 ? 3 : 2)
    skinny_fp8_kernel(const SkinnyFp8Arguments fp8) {
  const SkinnyArguments& a = fp8.product;
  constexpr int stage_bytes = row_tiles * 4 * piece_bytes;
  extern __shared__ __align__(16) unsigned char shared[];
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
  const int block_row = block * row_tiles * tile_outputs, first_row = block_row + lane_row;
  const std::int64_t columns = a.columns;
  const std::int64_t upper_half = (is_swiglu ? outputs : 8) * columns;
  const std::uint8_t* const lane_start = fp8.weights + first_row * columns + lane_piece * 16;
  unsigned char* const lane_place = ring + (lane_row * 8 + (lane_piece ^ (lane_row % 2 * 4))) * 16;
  const auto fetch_weights = [&](int stage, int chunk) {
    unsigned char* to = lane_place + stage * stage_bytes;
    const std::uint8_t* from = lane_start + chunk * fp8_chunk_columns;
    const bool in_row = chunk * fp8_chunk_columns + lane_piece * 16 < a.columns;
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
  const std::uint16_t* token_start[token_tiles];
  bool token_valid[token_tiles];
#pragma unroll
  for (int tile = 0; tile < token_tiles; ++tile) {
    const int token = tile * tile_tokens + group;
    token_valid[tile] = token < a.tokens;
    token_start[tile] = a.x + (token_valid[tile] ? token : 0) * a.x_stride + quad * 16;
  }
  const int chunks = (a.columns + fp8_chunk_columns - 1) / fp8_chunk_columns;
  using Tokens = ChunkTokens<row_tiles, token_tiles>;
  const auto load_tokens = [&](Tokens& to, int chunk) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int column = chunk * fp8_chunk_columns + part * 64;
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
        if (!fp8.scales_are_blocks || chunk >= chunks) continue;
        const int row = block_row + tile * tile_outputs + group + half * (is_swiglu ? outputs : 8);
        const int last = is_swiglu && half == 0 ? outputs - 1 : a.rows - 1;
        to.scale[tile][half] = fp8.scales[(row < last ? row : last) / fp8_scale_block * chunks + chunk];
      }
    }
  };

  const int first = member * warps + warp, step = members * warps;
  // Weights do not depend on the kernel before this one; tokens do.
#pragma unroll
  for (int stage = 0; stage < stages; ++stage) {
    if (first + stage * step < chunks) fetch_weights(stage, first + stage * step);
    commit_copies();
  }
  if (first + stages * step >= chunks) let_successor_start();
  wait_for_predecessor();

  float sums[row_tiles][token_tiles][4] = {};
  int stage = 0;
  const auto multiply_chunk = [&](Tokens& tokens, int chunk) {
    float chunk_sums[row_tiles][token_tiles][4] = {};
    wait_copies<stages - 1>();
    __syncwarp();
    const unsigned char* from = ring + stage * stage_bytes + group * 8 * 16;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int piece = (part * 4 + quad) ^ (group % 2 * 4);
      std::uint32_t x[token_tiles][4][2];  // by word of four columns, even and odd
#pragma unroll
      for (int t = 0; t < token_tiles; ++t) {
        const uint4 &low = tokens.x[part][t][0], &high = tokens.x[part][t][1];
        pair_tokens(low.x, low.y, x[t][0][0], x[t][0][1]);
        pair_tokens(low.z, low.w, x[t][1][0], x[t][1][1]);
        pair_tokens(high.x, high.y, x[t][2][0], x[t][2][1]);
        pair_tokens(high.z, high.w, x[t][3][0], x[t][3][1]);
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
          std::uint32_t low_even, low_odd, high_even, high_odd;
          widen(low_words[word], low_even, low_odd);
          widen(high_words[word], high_even, high_odd);
#pragma unroll
          for (int t = 0; t < token_tiles; ++t) {
            multiply_add(chunk_sums[tile][t], low_even, high_even, low_odd, high_odd, x[t][word][0], x[t][word][1]);
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
          sums[tile][t][i] = fmaf(tokens.scale[tile][i / 2], chunk_sums[tile][t][i], sums[tile][t][i]);
        }
      }
    }
    load_tokens(tokens, chunk + 2 * step);
    __syncwarp();  // all lanes have read the stage
    const int next = chunk + stages * step;
    if (next < chunks) fetch_weights(stage, next);
    commit_copies();
    if (next < chunks && next + step >= chunks) let_successor_start();
    stage = stage + 1 == stages ? 0 : stage + 1;
  };
  Tokens even, odd;  // two chunks of tokens are always on their way
  load_tokens(even, first);
  load_tokens(odd, first + step);
  for (int chunk = first; chunk < chunks; chunk += 2 * step) {
    multiply_chunk(even, chunk);
    if (chunk + step < chunks) multiply_chunk(odd, chunk + step);
  }
  const auto scaled = [&](int row, float sum) {
    const float scale = fp8.scales_are_blocks ? 1.0f : fp8.scales[row * fp8.scale_step];
    return sum * half_of_shift * scale;
  };
  finish_product<row_tiles, token_tiles, warps, epilogue>(a, shared, block, sums, scaled);
}

template <int row_tiles, int token_tiles, int warps, int stages, SkinnyEpilogue epilogue>
cudaError_t start_skinny_fp8(const SkinnyFp8Arguments& fp8, unsigned cluster, bool overlapped, cudaStream_t stream) {
  const auto kernel = skinny_fp8_kernel<row_tiles, token_tiles, warps, stages, epilogue>;
  constexpr std::size_t ring = std::size_t{warps} * stages * row_tiles * 4 * piece_bytes;
  constexpr std::size_t sums = sizeof(PartialSums<warps, row_tiles * tile_rows, token_tiles * tile_tokens>);
  constexpr std::size_t shared_bytes = ring > sums ? ring : sums;
  const cudaError_t error = allow_shared(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  constexpr int block_rows = row_tiles * (epilogue == SkinnyEpilogue::swiglu ? 8 : tile_rows);
  const int outputs = epilogue == SkinnyEpilogue::swiglu ? fp8.product.rows / 2 : fp8.product.rows;
  const unsigned blocks = static_cast<unsigned>((outputs + block_rows - 1) / block_rows);
  return start_kernel(kernel, {dim3(blocks * cluster), warps * warp_lanes, shared_bytes, cluster, overlapped}, stream,
                      fp8);
}

}  // namespace penstock::kernels::cuda::device::fp8
