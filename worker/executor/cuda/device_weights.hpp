// A model's weights on the GPU: every matrix row-major, as the kernels read it; those of layers in bf16 or in FP8 with
// scales. Made once from the packed weights of the processor's kernels; immutable. A rank of several has its share of
// heads and FFN columns, in the sizes of spec_of_share(), and all of the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/skinny_fp8.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

/// bf16, or e4m3 if there are scales.
struct DeviceMatrix {
  kernels::cuda::DeviceBuffer values, scales;
  kernels::cuda::Fp8Scales kind = kernels::cuda::Fp8Scales::row;

  bool is_fp8() const { return scales.bytes() > 0; }
  const kernels::cuda::Bf16* bf16() const { return values.as<kernels::cuda::Bf16>(); }
  kernels::cuda::Fp8Weights fp8() const { return {values.as<std::uint8_t>(), scales.as<float>(), kind}; }
};

struct DeviceLayer {
  kernels::cuda::DeviceBuffer attention_norm, ffn_norm;  // [hidden]
  DeviceMatrix qkv;                                      // [(heads + 2 kv_heads) * head_dim][hidden]
  kernels::cuda::DeviceBuffer qkv_bias;                  // [(heads + 2 kv_heads) * head_dim] or empty
  kernels::cuda::DeviceBuffer q_norm, k_norm;            // [head_dim] or empty
  DeviceMatrix output;                                   // [hidden][heads * head_dim]
  // With experts these of all of them, one below the other.
  DeviceMatrix gate_up;                // [2 * ffn][hidden], all gate rows first
  DeviceMatrix down;                   // [hidden][ffn]
  kernels::cuda::DeviceBuffer router;  // [experts][hidden] or empty
};

struct DeviceWeights {
  DeviceMatrix embedding;  // [vocabulary][hidden], bf16
  DeviceMatrix head;       // the same, or empty: use the embedding
  kernels::cuda::DeviceBuffer output_norm;
  std::vector<DeviceLayer> layers;

  const DeviceMatrix& output_head() const { return head.values.bytes() > 0 ? head : embedding; }
  /// Bytes of the largest FP8 matrix as bf16; 0: there is none.
  std::uint64_t widened_bytes() const;
};

/// Part `rank` of `ranks` equal ones.
struct TensorShare {
  std::uint32_t rank = 0, ranks = 1;
};
/// The spec of each share: heads, KV heads and FFN columns are divided; validate_tensor_parallel() says if they can be.
ModelSpec spec_of_share(const ModelSpec& whole, std::uint32_t ranks);
/// Makes a share's weights on the current device; called by every rank's thread.
using WeightSource = std::function<Result<DeviceWeights>(const ModelSpec& whole, const TensorShare& share)>;

/// Rotary pairs of neighbours, as GGUF keeps Llama's q and k, become pairs of halves, which the kernels have; that
/// changes no product. `weights` are whole. Waits for the copies. Error: too little GPU memory.
Result<DeviceWeights> upload_weights(const ModelSpec& spec, const ModelWeights& weights, const TensorShare& share);
enum class LayerFormat : std::uint8_t { bf16, fp8_rows, fp8_blocks };
/// Small random numbers in the share's shape, for benchmarks.
Result<DeviceWeights> random_weights(const ModelSpec& whole, const TensorShare& share, LayerFormat format);

}  // namespace penstock::worker
