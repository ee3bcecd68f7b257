#include "kernels/cuda/skinny_fp8.hpp"

#include "kernels/cuda/skinny_fp8_launch.hpp"

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

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

Result<void> check_sizes(const SkinnyProduct& p, const Fp8Weights& weights, SkinnyConfig config) {
  if (p.tokens == 0 || p.tokens > skinny_tokens_max) return bad_shape(name, "tokens must be 1 to 16");
  if (p.rows == 0 || p.rows > 0x7fffffffu) return bad_shape(name, "rows must be 1 to 2^31 - 1");
  if (p.columns == 0 || p.columns % 16 != 0 || p.columns > 0x7fffff00u) {
    return bad_shape(name, "columns must be a multiple of 16");
  }
  if (p.x_stride % 8 != 0 || p.x_stride < p.columns) return bad_shape(name, "x_stride must be columns or more, by 8");
  if (weights.values == nullptr || p.x == nullptr || p.y == nullptr) {
    return bad_shape(name, "weights, x and y are needed");
  }
  if (weights.scales == nullptr) return bad_shape(name, "scales are needed");
  if (!is_aligned(weights.values) || !is_aligned(p.x)) {
    return bad_shape(name, "weights and x must be aligned to 16 bytes");
  }
  if (p.gain != nullptr || p.gained != nullptr || p.squares != nullptr || p.norm_squares != nullptr) {
    return bad_shape(name, "there is no norm between two products");
  }
  if (config.shape >= skinny_fp8_shapes().size()) return bad_shape(name, "there is no such shape");
  const bool cluster_fits = config.cluster == 1 || config.cluster == 2 || config.cluster == 4 || config.cluster == 8;
  if (!cluster_fits) return bad_shape(name, "cluster must be 1, 2, 4 or 8");
  return {};
}

Result<void> check_output(const SkinnyProduct& p, bool swiglu) {
  if (!swiglu) {
    if (p.y_stride < p.rows) return bad_shape(name, "y_stride is less than rows");
    if (p.residual != nullptr && p.residual_stride < p.rows) {
      return bad_shape(name, "residual_stride is less than rows");
    }
    return {};
  }
  if (p.rows % 2 != 0) return bad_shape(name, "SwiGLU needs as many gate as up rows");
  if (p.y_stride < p.rows / 2) return bad_shape(name, "y_stride is less than rows / 2");
  if (p.bias != nullptr || p.residual != nullptr || p.output != OutputType::bf16) {
    return bad_shape(name, "SwiGLU has no bias, no residual and no float output");
  }
  return {};
}

SkinnyArguments product_arguments(const SkinnyProduct& p) {
  const bool is_float = p.output == OutputType::f32;
  SkinnyArguments a{};
  a.x = p.x;
  a.bias = p.bias;
  a.residual = p.residual;
  a.y = is_float ? nullptr : static_cast<Bf16*>(p.y);
  a.y_float = is_float ? static_cast<float*>(p.y) : nullptr;
  a.x_stride = static_cast<std::int64_t>(p.x_stride);
  a.y_stride = static_cast<std::int64_t>(p.y_stride);
  a.residual_stride = static_cast<std::int64_t>(p.residual_stride);
  a.rows = static_cast<std::int32_t>(p.rows);
  a.columns = static_cast<std::int32_t>(p.columns);
  a.tokens = static_cast<std::int32_t>(p.tokens);
  return a;
}

Result<void> start_product(const SkinnyProduct& p, const Fp8Weights& weights, SkinnyConfig config, Start start,
                           Stream stream, bool swiglu) {
  PENSTOCK_TRY_VOID(check_sizes(p, weights, config));
  PENSTOCK_TRY_VOID(check_output(p, swiglu));
  SkinnyFp8Arguments a{};
  a.product = product_arguments(p);
  a.weights = weights.values;
  a.scales = weights.scales;
  a.scale_step = weights.kind == Fp8Scales::row ? 1 : 0;
  a.scales_are_blocks = weights.kind == Fp8Scales::block;
  const StartSkinnyFp8 run = find_skinny_fp8(config.shape, p.tokens > 8 ? 2 : 1, swiglu);
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
