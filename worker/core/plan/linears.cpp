#include "worker/core/plan/linears.hpp"

#include <algorithm>
#include <string>

namespace penstock::worker::plan {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

/// In how many parts each expert is cut.
std::uint32_t expert_parts(const RankLayout& layout) {
  return layout.sizes().expert == 1 ? layout.stage_ranks() : 1;
}

Result<void> must_divide(std::string_view what, std::uint32_t count, std::string_view by, std::uint32_t parts) {
  if (count % parts == 0) return {};
  return make_error(ErrorCode::unsupported, std::to_string(count) + " " + std::string(what) + " do not divide by " +
                                                std::string(by) + " " + std::to_string(parts));
}

}  // namespace

std::uint64_t Linear::bytes_of_one() const {
  const std::uint64_t weights = rows * columns;
  switch (format) {
    case WeightFormat::bf16:
      return weights * 2;
    case WeightFormat::fp8:
      return weights;
    case WeightFormat::int4:
      return weights / 2 + weights / 128 * 4;
  }
  return 0;
}

std::uint64_t Linear::bytes() const {
  return bytes_of_one() * copies;
}

Result<void> validate_layout(const ModelShape& shape, const RankLayout& layout) {
  const AxisSizes& sizes = layout.sizes();
  const std::uint32_t replica = layout.stage_ranks();
  PENSTOCK_TRY_VOID(must_divide("attention heads", shape.heads, "tensor * context", replica));
  if (shape.kv_heads % sizes.tensor != 0 && sizes.tensor % shape.kv_heads != 0) {
    return make_error(ErrorCode::unsupported, std::to_string(shape.kv_heads) + " KV heads and tensor " +
                                                  std::to_string(sizes.tensor) + ": neither divides the other");
  }
  if (sizes.pipeline > shape.layers) {
    return make_error(ErrorCode::unsupported, "pipeline " + std::to_string(sizes.pipeline) + " is more than the " +
                                                  std::to_string(shape.layers) + " layers");
  }
  if (shape.experts == 0) {
    if (sizes.expert > 1) return make_error(ErrorCode::unsupported, "expert > 1, but the model has no experts");
    return must_divide("feed-forward columns", shape.ffn, "tensor * context", replica);
  }
  PENSTOCK_TRY_VOID(must_divide("experts", shape.experts, "expert", sizes.expert));
  return must_divide("feed-forward columns of an expert", shape.expert_ffn, "tensor * context", expert_parts(layout));
}

std::uint32_t kv_heads_of_rank(const ModelShape& shape, const RankLayout& layout) {
  return std::max(1u, shape.kv_heads / layout.sizes().tensor);
}

std::vector<Linear> linears_of_layer(const ModelShape& shape, const RankLayout& layout, WeightFormat format) {
  const std::uint32_t replica = layout.stage_ranks();
  const std::uint64_t hidden = shape.hidden, dim = shape.head_dim;
  const std::uint64_t qkv_heads = shape.heads / layout.sizes().tensor + 2 * kv_heads_of_rank(shape, layout);
  std::vector<Linear> linears{
      {"qkv", qkv_heads * dim, hidden, 1, LinearUse::every_token, format},
      {"o", hidden, shape.heads / replica * dim, 1, LinearUse::every_token, format},
  };
  if (shape.experts == 0) {
    linears.push_back({"gate+up", 2ull * shape.ffn / replica, hidden, 1, LinearUse::every_token, format});
    linears.push_back({"down", hidden, shape.ffn / replica, 1, LinearUse::every_token, format});
    return linears;
  }
  const std::uint64_t copies = shape.experts / layout.sizes().expert;
  const std::uint64_t ffn = shape.expert_ffn / expert_parts(layout);
  linears.push_back({"router", shape.experts, hidden, 1, LinearUse::every_token, WeightFormat::bf16});
  linears.push_back({"expert gate+up", 2 * ffn, hidden, copies, LinearUse::routed, format});
  linears.push_back({"expert down", hidden, ffn, copies, LinearUse::routed, format});
  return linears;
}

Linear head_of(const ModelShape& shape, const RankLayout& layout) {
  const std::uint64_t parts = layout.stage_ranks();
  return {"head", (shape.vocabulary + parts - 1) / parts, shape.hidden, 1, LinearUse::every_token, WeightFormat::bf16};
}

namespace {

/// Norms and biases of one layer.
std::uint64_t small_parameters(const ModelShape& shape) {
  const std::uint64_t norms = 2ull * shape.hidden + (shape.qk_norm ? 2ull * shape.head_dim : 0);
  const std::uint64_t biases = shape.qkv_bias ? (shape.heads + 2ull * shape.kv_heads) * shape.head_dim : 0;
  return norms + biases;
}

}  // namespace

std::uint64_t parameters_of(const ModelShape& shape) {
  std::uint64_t layer = small_parameters(shape);
  for (const Linear& linear : linears_of_layer(shape, RankLayout(), WeightFormat::bf16)) layer += linear.parameters();
  const std::uint64_t embedding = std::uint64_t{shape.vocabulary} * shape.hidden;
  return layer * shape.layers + embedding * (shape.tied_embeddings ? 1 : 2) + shape.hidden;
}

std::uint64_t parameters_read_by_token(const ModelShape& shape) {
  std::uint64_t layer = small_parameters(shape);
  for (const Linear& linear : linears_of_layer(shape, RankLayout(), WeightFormat::bf16)) {
    const bool is_routed = linear.use == LinearUse::routed;
    layer += is_routed ? linear.rows * linear.columns * shape.experts_per_token : linear.parameters();
  }
  return layer * shape.layers + std::uint64_t{shape.vocabulary} * shape.hidden + shape.hidden;
}

TileWaste tile_waste(const Linear& linear, std::uint32_t multiprocessors) {
  constexpr std::uint64_t tile_rows = 128, tile_columns = 64;
  const std::uint64_t rows = round_up(linear.rows, tile_rows), columns = round_up(linear.columns, tile_columns);
  TileWaste waste;
  waste.padding = 1 - static_cast<double>(linear.rows * linear.columns) / static_cast<double>(rows * columns);
  const std::uint64_t tiles = rows / tile_rows * linear.copies;
  waste.wave = 1 - static_cast<double>(tiles) / static_cast<double>(round_up(tiles, multiprocessors));
  return waste;
}

}  // namespace penstock::worker::plan
