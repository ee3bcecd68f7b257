#include "kernels/cuda/skinny_gemm.hpp"

#include <cstdint>

#include "kernels/cuda/skinny_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::string_view name = "skinny_gemm";

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

Result<void> validate(const SkinnyProduct& p, SkinnyConfig config) {
  if (p.tokens == 0 || p.tokens > skinny_tokens_max) return bad_shape(name, "tokens must be 1 to 16");
  if (p.rows == 0 || p.rows > 0x7fffffffu) return bad_shape(name, "rows must be 1 to 2^31 - 1");
  if (p.columns == 0 || p.columns % 8 != 0 || p.columns > 0x7fffff00u) {
    return bad_shape(name, "columns must be a multiple of 8");
  }
  if (p.x_stride % 8 != 0 || p.x_stride < p.columns) return bad_shape(name, "x_stride must be columns or more, by 8");
  if (p.weights == nullptr || p.x == nullptr || p.y == nullptr) return bad_shape(name, "weights, x and y are needed");
  if (!is_aligned(p.weights) || !is_aligned(p.x)) return bad_shape(name, "weights and x must be aligned to 16 bytes");
  const bool has_gain = p.gain != nullptr;
  if (has_gain != (p.gained != nullptr) || has_gain != (p.squares != nullptr)) {
    return bad_shape(name, "gain, gained and squares come together");
  }
  if ((p.norm_squares != nullptr) != (p.norm_parts > 0)) return bad_shape(name, "norm_squares come with norm_parts");
  if (config.shape >= skinny_shapes().size()) return bad_shape(name, "there is no such shape");
  const bool cluster_fits = config.cluster == 1 || config.cluster == 2 || config.cluster == 4 || config.cluster == 8;
  if (!cluster_fits) return bad_shape(name, "cluster must be 1, 2, 4 or 8");
  return {};
}

Result<void> start_product(const SkinnyProduct& p, SkinnyConfig config, Start start, Stream stream, bool swiglu) {
  const bool is_float = p.output == OutputType::f32;
  SkinnyArguments a{};
  a.weights = p.weights;
  a.x = p.x;
  a.bias = p.bias;
  a.residual = p.residual;
  a.y = is_float ? nullptr : static_cast<Bf16*>(p.y);
  a.y_float = is_float ? static_cast<float*>(p.y) : nullptr;
  a.gained = p.gained;
  a.gain = p.gain;
  a.squares = p.squares;
  a.norm_squares = p.norm_squares;
  a.norm_parts = static_cast<std::int32_t>(p.norm_parts);
  a.norm_epsilon = p.norm_epsilon;
  a.x_stride = static_cast<std::int64_t>(p.x_stride);
  a.y_stride = static_cast<std::int64_t>(p.y_stride);
  a.residual_stride = static_cast<std::int64_t>(p.residual_stride);
  a.rows = static_cast<std::int32_t>(p.rows);
  a.columns = static_cast<std::int32_t>(p.columns);
  a.tokens = static_cast<std::int32_t>(p.tokens);
  const StartSkinny run = find_skinny(config.shape, p.tokens > 8 ? 2 : 1, swiglu);
  return check_launch(run(a, config.cluster, start == Start::overlapped, stream), name);
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
  PENSTOCK_TRY_VOID(validate(product, config));
  if (product.y_stride < product.rows) return bad_shape(name, "y_stride is less than rows");
  if (product.residual != nullptr && product.residual_stride < product.rows) {
    return bad_shape(name, "residual_stride is less than rows");
  }
  return start_product(product, config, start, stream, false);
}

Result<void> skinny_gemm_swiglu(const SkinnyProduct& product, SkinnyConfig config, Start start, Stream stream) {
  PENSTOCK_TRY_VOID(validate(product, config));
  if (product.rows % 2 != 0) return bad_shape(name, "SwiGLU needs as many gate as up rows");
  if (product.y_stride < product.rows / 2) return bad_shape(name, "y_stride is less than rows / 2");
  if (product.bias != nullptr || product.residual != nullptr || product.gain != nullptr ||
      product.output != OutputType::bf16) {
    return bad_shape(name, "SwiGLU has no bias, no residual, no gain and no float output");
  }
  return start_product(product, config, start, stream, true);
}

}  // namespace penstock::kernels::cuda
