// Takes the tensors that a ModelSpec needs out of a TensorTable, packs each rank's share and gives their memory back.
// Internal to the loader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "worker/model/loader.hpp"
#include "worker/model/model_spec.hpp"
#include "worker/model/tensor_table.hpp"
#include "worker/model/weights.hpp"

namespace penstock::worker {

/// How a checkpoint family names what a layer with experts has, without ".weight". Empty names: it has none.
struct ExpertNames {
  std::string router;
  std::string each;  // before the expert's number and "."; empty: a tensor holds all experts, one below the other
  std::string gate, up, down;  // gpt-oss: no `up`, since its rows alternate with those of `gate`
};

/// How a checkpoint family names its tensors. Layer names follow layer_prefix + number + ".".
struct TensorNames {
  std::string embedding, output_norm, head, layer_prefix;
  std::string attention_norm, q, k, v, output, q_norm, k_norm, ffn_norm, gate, up, down;  // without ".weight"
  std::string sinks;                                                                      // whole
  ExpertNames experts;
};
const TensorNames& gguf_names();
/// `architecture` as in ModelSpec.
const TensorNames& hugging_face_names(std::string_view architecture);

/// Of `options` ranks, FP8 weights and progress count. Empties `table`; errors name a tensor that is missing, has the
/// wrong shape or is left over.
Result<ModelWeights> build_weights(const ModelSpec& spec, const TensorNames& names, TensorTable& table,
                                   const LoadOptions& options);

}  // namespace penstock::worker
