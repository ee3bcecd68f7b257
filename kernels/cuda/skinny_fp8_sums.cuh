// How skinny products with FP8 weights end: sums are added up and scaled, bias, residual or SwiGLU applied on the way
// out.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/skinny_launch.hpp"
#include "kernels/cuda/skinny_sums.cuh"

namespace penstock::kernels::cuda::device::fp8 {

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
  constexpr int tokens = token_tiles * tile_tokens;
  constexpr bool is_swiglu = epilogue == SkinnyEpilogue::swiglu;
  constexpr int tile_outputs = is_swiglu ? 8 : tile_rows;
  const int members = cluster_blocks(), member = cluster_rank();
  const int outputs = is_swiglu ? a.rows / 2 : a.rows;
  const auto& partial = add_up_warps<row_tiles, token_tiles, warps>(shared, sums, members);
  const auto sum_of = [&](int row, int token) { return sum_of_cluster(partial, row, token, members); };
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
