// What one rank keeps in its device's memory. Pure; any thread.
#pragma once

#include <cstdint>

#include "worker/core/parallel/rank_layout.hpp"
#include "worker/core/plan/device_kind.hpp"
#include "worker/core/plan/model_shape.hpp"

namespace penstock::worker::plan {

struct MemoryOptions {
  WeightFormat weights = WeightFormat::bf16;
  std::uint32_t kv_value_bytes = 2;
  std::uint32_t step_tokens = 2048;
  std::uint32_t sequences = 256;
};

/// Of the rank that holds most: stages differ by a layer, and by embedding and head.
struct RankMemory {
  std::uint64_t layer_bytes = 0;  // one layer's weights
  std::uint64_t weights_bytes = 0;
  std::uint64_t workspace_bytes = 0;    // activations of a step, logits, partial attention
  std::uint64_t reserved_bytes = 0;     // the driver's context, modules, graphs
  std::uint64_t kv_token_bytes = 0;     // one token's keys and values on this rank
  std::uint64_t kv_bytes = 0;           // what is left
  std::uint64_t replica_kv_tokens = 0;  // tokens that the ranks of one replica hold together
};

/// kv_bytes is 0 if weights and workspace alone are too large.
RankMemory memory_of(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device,
                     const MemoryOptions& options);

}  // namespace penstock::worker::plan
