#include "worker/core/plan/memory.hpp"

#include <algorithm>

#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

// The CUDA context, kernels and captured graphs: an allowance, not a measurement.
constexpr std::uint64_t reserved = 1536ull << 20;
constexpr std::uint64_t library_workspace = 32ull << 20;  // what cuBLASLt asks for on Hopper
constexpr std::uint64_t attention_splits = 8;

std::uint64_t layer_weights(const ModelShape& shape, const RankLayout& layout, WeightFormat format) {
  std::uint64_t bytes = 2 * (2ull * shape.hidden + (shape.qk_norm ? 2ull * shape.head_dim : 0));
  for (const Linear& linear : linears_of_layer(shape, layout, format)) {
    bytes += linear.bytes();
    if (shape.qkv_bias && linear.name == "qkv") bytes += 2 * linear.rows;
  }
  return bytes;
}

/// bf16 rows of a step's tokens between kernels, with nothing shared; float logits; partial attention of decoding rows.
std::uint64_t workspace(const ModelShape& shape, const RankLayout& layout, const MemoryOptions& options) {
  const std::uint64_t heads = shape.heads / layout.sizes().tensor;
  std::uint64_t token_values = 2ull * shape.hidden + heads * shape.head_dim;
  for (const Linear& linear : linears_of_layer(shape, layout, options.weights)) {
    const bool is_routed = linear.use == LinearUse::routed;
    const std::uint64_t uses = is_routed ? shape.experts_per_token : 1;
    token_values += uses * linear.rows;
    if (linear.name == "gate+up" || linear.name == "expert gate+up") token_values += uses * linear.rows / 2;
  }
  const std::uint64_t logits = 4ull * options.sequences * head_of(shape, layout).rows;
  const std::uint64_t partials = 4ull * options.sequences * heads * attention_splits * (shape.head_dim + 2);
  return 2 * token_values * options.step_tokens + logits + partials + library_workspace;
}

}  // namespace

RankMemory memory_of(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device,
                     const MemoryOptions& options) {
  const std::uint32_t stages = layout.sizes().pipeline;
  RankMemory memory;
  memory.layer_bytes = layer_weights(shape, layout, options.weights);
  const std::uint64_t table = head_of(shape, layout).bytes();
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    const bool is_first = stage == 0, is_last = stage + 1 == stages;
    const bool shares_table = is_first && is_last && shape.tied_embeddings;
    std::uint64_t bytes = share_of(shape.layers, stages, stage).count * memory.layer_bytes;
    if (is_first) bytes += table;
    if (is_last) bytes += 2ull * shape.hidden + (shares_table ? 0 : table);
    memory.weights_bytes = std::max(memory.weights_bytes, bytes);
  }
  memory.workspace_bytes = workspace(shape, layout, options);
  memory.reserved_bytes = reserved;
  const std::uint64_t stage_layers = share_of(shape.layers, stages, 0).count;
  memory.kv_token_bytes = stage_layers * 2 * kv_heads_of_rank(shape, layout) * shape.head_dim * options.kv_value_bytes;
  const std::uint64_t used = memory.weights_bytes + memory.workspace_bytes + memory.reserved_bytes;
  memory.kv_bytes = device.memory_bytes > used ? device.memory_bytes - used : 0;
  memory.replica_kv_tokens = memory.kv_bytes / memory.kv_token_bytes * layout.sizes().context;
  return memory;
}

}  // namespace penstock::worker::plan
