// How skinny products of all weight formats end: what a thread adds to its outputs and multiplies them by is asked for
// before the loop and looked at behind it, where sums are scaled, bias, residual or SwiGLU applied, and what the norm
// behind the product needs is left.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/skinny_launch.hpp"
#include "kernels/cuda/skinny_sums.cuh"

namespace penstock::kernels::cuda::device {

/// What is added to an output and what it is multiplied by for the next norm, as it lies in memory.
struct Early {
  std::uint16_t bias = 0, residual = 0, gain = 0;
  __device__ float added() const { return to_float(bias) + to_float(residual); }
};

__device__ inline Early read_early(const SkinnyArguments& a, int row, int token) {
  Early early;
  if (a.bias != nullptr) early.bias = a.bias[row];
  if (a.residual != nullptr) early.residual = a.residual[token * a.residual_stride + row];
  if (a.gain != nullptr) early.gain = a.gain[row];
  return early;
}

/// Returns the value as it was stored.
__device__ inline float store_result(const SkinnyArguments& a, int row, int token, float value) {
  const std::int64_t place = token * a.y_stride + row;
  if (a.y_float != nullptr) {
    a.y_float[place] = value;
    return value;
  }
  const std::uint16_t rounded = to_bf16(value);
  a.y[place] = rounded;
  return to_float(rounded);
}

/// For the norm behind this product: all lanes of a warp call it, `outputs` neighbours have one token.
template <int outputs>
__device__ inline void store_for_norm(const SkinnyArguments& a, int row, int token, bool exists, float value,
                                      float gain, int block, int blocks) {
  static_assert(outputs == 16 || outputs == 32);
  if (exists) a.gained[static_cast<std::int64_t>(token) * a.rows + row] = to_bf16(value * gain);
  float squares = exists ? value * value : 0.0f;
#pragma unroll
  for (int step = outputs / 2; step > 0; step /= 2) squares += __shfl_xor_sync(all_lanes, squares, step);
  if (threadIdx.x % outputs == 0 && token < a.tokens) a.squares[token * blocks + block] = squares;
}

/// One over the root mean square of every token's x, where x still has to be divided by it, else 1; in shared memory,
/// by whole warps, of which a block has `warps`. Seen after the next barrier of the block.
template <int tokens, int warps>
__device__ inline void read_inverse_roots(const SkinnyArguments& a, float (&inverse)[tokens]) {
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  for (int token = warp; token < tokens; token += warps) {
    float scale = 1;
    if (a.norm_squares != nullptr && token < a.tokens) {
      float squares = 0;
#pragma unroll 8
      for (int i = lane; i < a.norm_parts; i += warp_lanes) squares += a.norm_squares[token * a.norm_parts + i];
      scale = rsqrtf(warp_sum(squares) / static_cast<float>(a.columns) + a.norm_epsilon);
    }
    if (lane == 0) inverse[token] = scale;
  }
}

/// A thread's outputs of its block: whole warps, since a block has a multiple of 32 outputs.
template <int row_tiles, int token_tiles, int warps, SkinnyEpilogue epilogue>
class Ending {
 public:
  static constexpr bool is_swiglu = epilogue == SkinnyEpilogue::swiglu;
  static constexpr int tokens = token_tiles * tile_tokens, tile_outputs = is_swiglu ? 8 : tile_rows;

  __device__ Ending(const SkinnyArguments& a, int block, int members, int member)
      : first_(member * threads + threadIdx.x),
        step_(members * threads),
        first_output_(block * block_outputs),
        outputs_(is_swiglu ? a.rows / 2 : a.rows) {}

  /// `scale_of(row)`: what sums in that row of the matrix are multiplied by. Weights, so before waiting.
  template <class ScaleOf>
  __device__ void read_scales(const ScaleOf& scale_of) {
#pragma unroll
    for (int i = 0; i < own_outputs; ++i) {
      const int output = min(output_of(i), outputs_ - 1);
      scale_[i] = scale_of(output);
      if constexpr (is_swiglu) up_scale_[i] = scale_of(outputs_ + output);
    }
  }
  /// After waiting.
  __device__ void read_inputs(const SkinnyArguments& a) {
    if constexpr (!is_swiglu) {
#pragma unroll
      for (int i = 0; i < own_outputs; ++i) {
        if (output_of(i) < outputs_ && token_of(i) < a.tokens) early_[i] = read_early(a, output_of(i), token_of(i));
      }
    }
  }
  /// `sum_of(row, token)` of the block's tiles; `blocks` of the whole product.
  template <class SumOf>
  __device__ void store(const SkinnyArguments& a, const SumOf& sum_of, const float (&inverse)[tokens], int block,
                        int blocks) const {
#pragma unroll
    for (int i = 0; i < own_outputs; ++i) {
      if (first_ + i * step_ >= block_outputs * tokens) break;
      const int place = (first_ + i * step_) % block_outputs, token = token_of(i), output = output_of(i);
      const bool exists = output < outputs_ && token < a.tokens;
      const float scale = scale_[i] * inverse[token];
      if constexpr (is_swiglu) {
        const int gate = place / 8 * tile_rows + place % 8;
        const float up_scale = up_scale_[i] * inverse[token];
        if (exists) {
          store_result(a, output, token, silu(sum_of(gate, token) * scale) * (sum_of(gate + 8, token) * up_scale));
        }
      } else {
        const float value =
            exists ? store_result(a, output, token, sum_of(place, token) * scale + early_[i].added()) : 0.0f;
        if (a.gained != nullptr) {
          store_for_norm<block_outputs>(a, output, token, exists, value, to_float(early_[i].gain), block, blocks);
        }
      }
    }
  }

 private:
  static constexpr int block_outputs = row_tiles * tile_outputs, threads = warps * warp_lanes;
  static constexpr int own_outputs = (block_outputs * tokens + threads - 1) / threads;

  __device__ int output_of(int i) const { return first_output_ + (first_ + i * step_) % block_outputs; }
  __device__ int token_of(int i) const { return (first_ + i * step_) / block_outputs; }

  int first_, step_, first_output_, outputs_;
  Early early_[own_outputs];
  float scale_[own_outputs], up_scale_[own_outputs];
};

}  // namespace penstock::kernels::cuda::device
