// The weights of a layer with experts. Internal to build_weights().
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/tensor_packer.hpp"
#include "worker/model/weight_builder.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

/// Fills ffn_norm, router and experts of layer `layer` for all ranks of `weights`.
Result<void> build_experts(const ModelSpec& spec, const TensorNames& names, std::uint32_t layer, TensorPacker& packer,
                           ModelWeights& weights);

}  // namespace penstock::worker
