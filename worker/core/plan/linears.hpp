// The matrices that one rank multiplies with, from the shape of a model and its layout, and how well tiles fit them.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "worker/core/parallel/rank_layout.hpp"
#include "worker/core/plan/model_shape.hpp"

namespace penstock::worker::plan {

enum class LinearUse : std::uint8_t {
  every_token,  // read once a step
  routed,       // an expert's: read when a token of the step goes there
};

/// y[m][rows] = x[m][columns] W^T, on one rank.
struct Linear {
  std::string_view name;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t copies = 1;  // experts on the rank
  LinearUse use = LinearUse::every_token;
  WeightFormat format = WeightFormat::bf16;

  std::uint64_t parameters() const { return rows * columns * copies; }
  std::uint64_t bytes() const;         // of all copies
  std::uint64_t bytes_of_one() const;  // of one copy
};

/// Whether the layout's sizes divide what they cut. The error names the count that does not fit.
Result<void> validate_layout(const ModelShape& shape, const RankLayout& layout);

/// K and V heads that one rank keeps: at least one, so that ranks beyond the count hold copies.
std::uint32_t kv_heads_of_rank(const ModelShape& shape, const RankLayout& layout);

/// Of one layer, for a layout that validate_layout() accepts. `format` is that of attention, feed-forward and experts.
std::vector<Linear> linears_of_layer(const ModelShape& shape, const RankLayout& layout, WeightFormat format);
Linear head_of(const ModelShape& shape, const RankLayout& layout);

/// Parameters of the whole model, as model cards count them.
std::uint64_t parameters_of(const ModelShape& shape);
/// Those that one token is multiplied with: without the embedding rows, and of experts only the chosen ones.
std::uint64_t parameters_read_by_token(const ModelShape& shape);

/// The share of a large product's work that goes into nothing, with tiles of 128 rows by 128 tokens over 64 columns.
struct TileWaste {
  double padding = 0;  // rows and columns that fill up the last tiles
  double wave = 0;     // multiprocessors without a tile in the last wave, at 128 tokens
};
TileWaste tile_waste(const Linear& linear, std::uint32_t multiprocessors);

}  // namespace penstock::worker::plan
