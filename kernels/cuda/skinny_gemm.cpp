#include "kernels/cuda/skinny_gemm.hpp"

#include "kernels/cuda/skinny_product.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::string_view name = "skinny_gemm";

Result<void> start_product(const SkinnyProduct& p, SkinnyConfig config, Start start, Stream stream, bool is_swiglu) {
  PENSTOCK_TRY_VOID(detail::check_sizes(name, p, p.weights, 8));
  PENSTOCK_TRY_VOID(detail::check_norms(name, p));
  PENSTOCK_TRY_VOID(detail::check_config(name, config, skinny_shapes().size()));
  PENSTOCK_TRY_VOID(detail::check_output(name, p, is_swiglu));
  const StartSkinny run = find_skinny(config.shape, detail::token_tiles(p), is_swiglu);
  return check_launch(run(detail::arguments_of(p), config.cluster, start == Start::overlapped, stream), name);
}

}  // namespace

// From gpu_kernels_bench and gpu_engine_bench on an H200: with many rows blocks are plenty; with few, one wave of them
// should hold the whole matrix, and long rows are shared by a cluster. What follows attention in a layer fetches most
// of its matrix meanwhile, so that deep rings pay there.
SkinnyConfig choose_skinny(std::uint32_t rows, std::uint32_t columns, std::uint32_t tokens) {
  const std::uint64_t tiles = (std::uint64_t{rows} + 15) / 16;
  const bool one_tile = tokens <= 8;
  if (tiles >= 500 && tiles < 4000 && one_tile) return {0, 1};
  if (tiles >= 500) return {1, 1};
  if (tiles >= 300) return one_tile ? SkinnyConfig{2, 1} : SkinnyConfig{1, 1};
  if (tiles >= 200) return columns >= 8192 ? SkinnyConfig{2, 2} : SkinnyConfig{2, 1};
  return one_tile ? SkinnyConfig{0, 4} : SkinnyConfig{0, 2};
}

std::uint32_t squares_parts(std::uint32_t rows, SkinnyConfig config) {
  const std::uint32_t block_rows = 16u * skinny_shapes()[config.shape].row_tiles;
  return (rows + block_rows - 1) / block_rows;
}

std::uint64_t bytes_of(const SkinnyProduct& p) {
  const std::uint64_t rows = p.rows, columns = p.columns, tokens = p.tokens;
  const std::uint64_t output = tokens * rows * (p.output == OutputType::f32 ? 4 : 2);
  return 2 * rows * columns + 2 * tokens * columns + output + (p.bias != nullptr ? 2 * rows : 0) +
         (p.residual != nullptr ? 2 * tokens * rows : 0) + (p.gain != nullptr ? 2 * rows + 2 * tokens * rows : 0);
}

Result<void> skinny_gemm(const SkinnyProduct& product, SkinnyConfig config, Start start, Stream stream) {
  return start_product(product, config, start, stream, false);
}

Result<void> skinny_gemm_swiglu(const SkinnyProduct& product, SkinnyConfig config, Start start, Stream stream) {
  return start_product(product, config, start, stream, true);
}

}  // namespace penstock::kernels::cuda
