#include "kernels/cuda/skinny_fp8.hpp"

#include "kernels/cuda/skinny_fp8_launch.hpp"
#include "kernels/cuda/skinny_product.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::string_view name = "skinny_fp8";

std::uint64_t scale_count(Fp8Scales kind, std::uint64_t rows, std::uint64_t columns) {
  switch (kind) {
    case Fp8Scales::tensor:
      return 1;
    case Fp8Scales::row:
      return rows;
    case Fp8Scales::block:
      return (rows + 127) / 128 * ((columns + 127) / 128);
  }
  return 0;
}

Result<void> start_product(const SkinnyProduct& p, const Fp8Weights& weights, SkinnyConfig config, Start start,
                           Stream stream, bool is_swiglu) {
  PENSTOCK_TRY_VOID(detail::check_sizes(name, p, weights.values, 16));
  if (weights.scales == nullptr) return bad_shape(name, "scales are needed");
  PENSTOCK_TRY_VOID(detail::check_norms(name, p));
  PENSTOCK_TRY_VOID(detail::check_config(name, config, skinny_fp8_shapes().size()));
  PENSTOCK_TRY_VOID(detail::check_output(name, p, is_swiglu));
  SkinnyFp8Arguments a{};
  a.product = detail::arguments_of(p);
  a.weights = weights.values;
  a.scales = weights.scales;
  a.scale_step = weights.kind == Fp8Scales::row ? 1 : 0;
  a.scales_are_blocks = weights.kind == Fp8Scales::block;
  const StartSkinnyFp8 run = find_skinny_fp8(config.shape, detail::token_tiles(p), is_swiglu);
  return check_launch(run(a, config.cluster, start == Start::overlapped, stream), name);
}

}  // namespace

// From gpu_kernels_bench and gpu_engine_bench on an H200. Up to 8 tokens two tiles of rows share their conversion, and
// a few long rows are shared by two blocks; with more tokens one tile leaves registers for them.
SkinnyConfig choose_skinny_fp8(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens) {
  if (tokens <= 8) return rows <= 4096 && columns >= 12288 ? SkinnyConfig{1, 2} : SkinnyConfig{1, 1};
  const bool is_more_than_a_wave = rows > 4224 && rows <= 8192 && columns <= 4096;
  return columns > 16384 || is_more_than_a_wave ? SkinnyConfig{2, 1} : SkinnyConfig{0, 1};
}

std::uint32_t squares_parts_fp8(std::uint32_t rows, SkinnyConfig config) {
  const std::uint32_t block_rows = 16u * skinny_fp8_shapes()[config.shape].row_tiles;
  return (rows + block_rows - 1) / block_rows;
}

std::uint64_t bytes_of(const SkinnyProduct& p, Fp8Scales kind) {
  const std::uint64_t rows = p.rows, columns = p.columns;
  return bytes_of(p) - rows * columns + sizeof(float) * scale_count(kind, rows, columns);
}

Result<void> skinny_fp8(const SkinnyProduct& product, const Fp8Weights& weights, SkinnyConfig config, Start start,
                        Stream stream) {
  return start_product(product, weights, config, start, stream, false);
}

Result<void> skinny_fp8_swiglu(const SkinnyProduct& product, const Fp8Weights& weights, SkinnyConfig config,
                               Start start, Stream stream) {
  return start_product(product, weights, config, start, stream, true);
}

}  // namespace penstock::kernels::cuda
