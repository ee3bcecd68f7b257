// How skinny products with FP8 weights end: sums of warps, then of the blocks of a cluster, are
// added in a fixed order, and bias, residual or SwiGLU are applied on the way out.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/skinny_launch.hpp"

namespace penstock::kernels::cuda::device::fp8 {

constexpr int tile_rows = 16, tile_tokens = 8;
constexpr int piece_bytes = warp_lanes * 16;  // what a warp copies with one instruction

enum class SkinnyEpilogue { plain, swiglu };

/// Adds up what the warps of a block, then the blocks of a cluster have; element (row, token) of the block's tile.
template <int warps, int rows, int tokens>
struct PartialSums {
  float of_warp[warps][tokens][rows];
  float of_block[tokens][rows];
};

template <SkinnyEpilogue epilogue>
__device__ inline void store_result(const SkinnyArguments& a, int row, int token, float value) {
  if (token >= a.tokens) return;
  if (a.bias != nullptr) value += to_float(a.bias[row]);
  if (a.residual != nullptr) value += to_float(a.residual[token * a.residual_stride + row]);
  const std::int64_t place = token * a.y_stride + row;
  if (a.y_float != nullptr) {
    a.y_float[place] = value;
  } else {
    a.y[place] = to_bf16(value);
  }
}

/// All threads of all blocks of the cluster, when no copy that is still needed is under way; `shared` is what the ring
/// of copies was in. `scaled(row, sum)` gives the product's value in that row of the matrix.
template <int row_tiles, int token_tiles, int warps, SkinnyEpilogue epilogue, class Scaled>
__device__ inline void finish_product(const SkinnyArguments& a, unsigned char* shared, int block,
                                      const float (&sums)[row_tiles][token_tiles][4], const Scaled& scaled) {
  constexpr int rows = row_tiles * tile_rows, tokens = token_tiles * tile_tokens;
  constexpr bool is_swiglu = epilogue == SkinnyEpilogue::swiglu;
  constexpr int tile_outputs = is_swiglu ? 8 : tile_rows;
  using Sums = PartialSums<warps, rows, tokens>;
  const int members = cluster_blocks(), member = cluster_rank();
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const int group = lane / 4, quad = lane % 4;
  const int outputs = is_swiglu ? a.rows / 2 : a.rows;
  wait_copies<0>();
  __syncthreads();  // the ring becomes the partial sums

  Sums& partial = *reinterpret_cast<Sums*>(shared);
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile) {
#pragma unroll
    for (int t = 0; t < token_tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = tile * tile_rows + group + (i / 2) * 8, token = t * tile_tokens + quad * 2 + i % 2;
        partial.of_warp[warp][token][row] = sums[tile][t][i];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rows * tokens; i += warps * warp_lanes) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) sum += partial.of_warp[w][i / rows][i % rows];
    partial.of_block[i / rows][i % rows] = sum;
  }
  if (members > 1) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  const auto sum_of = [&](int row, int token) {
    if (members == 1) return partial.of_block[token][row];
    float sum = 0;
    for (int other = 0; other < members; ++other) {
      sum += read_of_block(&partial.of_block[token][row], other);
    }
    return sum;
  };
  constexpr int block_outputs = row_tiles * tile_outputs;
  for (int i = member * warps * warp_lanes + threadIdx.x; i < block_outputs * tokens;
       i += members * warps * warp_lanes) {
    const int place = i % block_outputs, token = i / block_outputs;
    const int output = block * block_outputs + place;
    if (output >= outputs) continue;
    if constexpr (is_swiglu) {
      const int gate_row = place / 8 * tile_rows + place % 8;
      const float gate = scaled(output, sum_of(gate_row, token));
      const float up = scaled(outputs + output, sum_of(gate_row + 8, token));
      store_result<epilogue>(a, output, token, silu(gate) * up);
    } else {
      store_result<epilogue>(a, output, token, scaled(output, sum_of(place, token)));
    }
  }
  if (members > 1) cluster_barrier();  // nobody ends while others read its sums
}

}  // namespace penstock::kernels::cuda::device::fp8
