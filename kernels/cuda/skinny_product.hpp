// What the host sides of skinny products of all weight formats share: the checks of a product and what a kernel is told
// of it. Internal.
#pragma once

#include <string_view>

#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/cuda/skinny_launch.hpp"

namespace penstock::kernels::cuda::detail {

/// `weights` in place of the product's; columns must be a multiple of `columns_step`.
Result<void> check_sizes(std::string_view kernel, const SkinnyProduct& product, const void* weights,
                         std::uint32_t columns_step);
/// What norms around the product need.
Result<void> check_norms(std::string_view kernel, const SkinnyProduct& product);
Result<void> check_config(std::string_view kernel, SkinnyConfig config, std::size_t shapes);
/// Strides of what is written and added; what SwiGLU does not have.
Result<void> check_output(std::string_view kernel, const SkinnyProduct& product, bool is_swiglu);

SkinnyArguments arguments_of(const SkinnyProduct& product);
/// Of 8 tokens.
inline std::uint32_t token_tiles(const SkinnyProduct& product) {
  return product.tokens > 8 ? 2 : 1;
}

}  // namespace penstock::kernels::cuda::detail
