// A model's weights on the GPU: every matrix row-major in bf16, as the kernels read it. Made once from the packed
// weights of the processor's kernels; immutable. A rank of several has its share of heads and FFN columns, in the sizes
// of spec_of_share(), and all of the rest.
#pragma once

#include <cstdint>
#include <functional>
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
/// Small random numbers in the share's shape, for benchmarks.
Result<DeviceWeights> random_weights(const ModelSpec& whole, const TensorShare& share);

}  // namespace penstock::worker
