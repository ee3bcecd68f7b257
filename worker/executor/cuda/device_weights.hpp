// A model's weights on the GPU: every matrix row-major in bf16, as the kernels read it. Made once from the packed
// weights of the processor's kernels; immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

struct DeviceLayer {
  kernels::cuda::DeviceBuffer attention_norm, ffn_norm;  // [hidden]
  kernels::cuda::DeviceBuffer qkv;                       // [(heads + 2 kv_heads) * head_dim][hidden]
  kernels::cuda::DeviceBuffer qkv_bias;                  // [(heads + 2 kv_heads) * head_dim] or empty
  kernels::cuda::DeviceBuffer q_norm, k_norm;            // [head_dim] or empty
  kernels::cuda::DeviceBuffer output;                    // [hidden][heads * head_dim]
  kernels::cuda::DeviceBuffer gate_up;                   // [2 * ffn][hidden], all gate rows first
  kernels::cuda::DeviceBuffer down;                      // [hidden][ffn]
};

struct DeviceWeights {
  kernels::cuda::DeviceBuffer embedding;  // [vocabulary][hidden]
  kernels::cuda::DeviceBuffer head;       // the same, or empty: use the embedding
  kernels::cuda::DeviceBuffer output_norm;
  std::vector<DeviceLayer> layers;
};

/// Rotary pairs of neighbours, as GGUF keeps Llama's q and k, become pairs of halves, which the kernels have; that
/// changes no product. Waits for the copies. Error: too little GPU memory.
Result<DeviceWeights> upload_weights(const ModelSpec& spec, const ModelWeights& weights);
/// Small random numbers in the model's shape, for benchmarks.
Result<DeviceWeights> random_weights(const ModelSpec& spec);

}  // namespace penstock::worker
