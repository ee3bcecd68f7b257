// Takes the tensors that a ModelSpec needs out of a TensorTable, packs each rank's share and gives their memory back.
// Internal to the loader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/base/result.hpp"
#include "worker/model/loader.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/tensor_table.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

/// How a checkpoint family names its tensors. Layer names follow layer_prefix + number + ".".
struct TensorNames {
  std::string embedding, output_norm, head, layer_prefix;
  std::string attention_norm, q, k, v, output, q_norm, k_norm, ffn_norm, gate, up, down;  // without ".weight"
};
const TensorNames& gguf_names();
const TensorNames& hugging_face_names();

/// Of `options` ranks, FP8 weights and progress count. Empties `table`; errors name a tensor that is missing, has the
/// wrong shape or is left over.
Result<ModelWeights> build_weights(const ModelSpec& spec, const TensorNames& names, TensorTable& table,
                                   const LoadOptions& options);

}  // namespace penstock::worker
