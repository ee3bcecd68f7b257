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
  if (p.gain != nullptr || p.gained != nullptr || p.squares != nullptr || p.norm_squares != nullptr) {
    return bad_shape(name, "there is no norm between two products");
  }
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

// From gpu_kernels_bench on an H200: widening is a good part of the work, so tokens are paired for two tiles of rows; a
// few long rows are shared by two blocks.
SkinnyConfig choose_skinny_fp8(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens) {
  if (rows <= 4096 && columns >= 12288) return {1, 2};
  if (tokens == 1 && rows > 8192 && columns >= 8192) return {0, 1};
  return {1, 1};
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
