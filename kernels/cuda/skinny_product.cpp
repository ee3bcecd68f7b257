#include "kernels/cuda/skinny_product.hpp"

#include <cstdint>
#include <string>

namespace penstock::kernels::cuda::detail {
namespace {

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

Result<void> check_sizes(std::string_view kernel, const SkinnyProduct& p, const void* weights,
                         std::uint32_t columns_step) {
  if (p.tokens == 0 || p.tokens > skinny_tokens_max) return bad_shape(kernel, "tokens must be 1 to 16");
  if (p.rows == 0 || p.rows > 0x7fffffffu) return bad_shape(kernel, "rows must be 1 to 2^31 - 1");
  if (p.columns == 0 || p.columns % columns_step != 0 || p.columns > 0x7fffff00u) {
    return bad_shape(kernel, "columns must be a multiple of " + std::to_string(columns_step));
  }
  if (p.x_stride % 8 != 0 || p.x_stride < p.columns) return bad_shape(kernel, "x_stride must be columns or more, by 8");
  if (weights == nullptr || p.x == nullptr || p.y == nullptr) return bad_shape(kernel, "weights, x and y are needed");
  if (!is_aligned(weights) || !is_aligned(p.x)) return bad_shape(kernel, "weights and x must be aligned to 16 bytes");
  return {};
}

Result<void> check_norms(std::string_view kernel, const SkinnyProduct& p) {
  const bool has_gain = p.gain != nullptr;
  if (has_gain != (p.gained != nullptr) || has_gain != (p.squares != nullptr)) {
    return bad_shape(kernel, "gain, gained and squares come together");
  }
  if ((p.norm_squares != nullptr) != (p.norm_parts > 0)) return bad_shape(kernel, "norm_squares come with norm_parts");
  return {};
}

Result<void> check_config(std::string_view kernel, SkinnyConfig config, std::size_t shapes) {
  if (config.shape >= shapes) return bad_shape(kernel, "there is no such shape");
  const bool cluster_fits = config.cluster == 1 || config.cluster == 2 || config.cluster == 4 || config.cluster == 8;
  if (!cluster_fits) return bad_shape(kernel, "cluster must be 1, 2, 4 or 8");
  return {};
}

Result<void> check_output(std::string_view kernel, const SkinnyProduct& p, bool is_swiglu) {
  if (!is_swiglu) {
    if (p.y_stride < p.rows) return bad_shape(kernel, "y_stride is less than rows");
    if (p.residual != nullptr && p.residual_stride < p.rows) {
      return bad_shape(kernel, "residual_stride is less than rows");
    }
    return {};
  }
  if (p.rows % 2 != 0) return bad_shape(kernel, "SwiGLU needs as many gate as up rows");
  if (p.y_stride < p.rows / 2) return bad_shape(kernel, "y_stride is less than rows / 2");
  if (p.bias != nullptr || p.residual != nullptr || p.gain != nullptr || p.output != OutputType::bf16) {
    return bad_shape(kernel, "SwiGLU has no bias, no residual, no gain and no float output");
  }
  return {};
}

SkinnyArguments arguments_of(const SkinnyProduct& p) {
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
  return a;
}

}  // namespace penstock::kernels::cuda::detail
