#include "kernels/cuda/norm.hpp"

#include "kernels/cuda/norm_launch.hpp"

namespace penstock::kernels::cuda {

std::uint64_t bytes_of(const RmsNorm& norm) {
  const std::uint64_t values = std::uint64_t{norm.tokens} * norm.columns;
  return 2 * (values * (norm.x != nullptr ? 4 : 2) + norm.columns);
}

Result<void> check_norm(const RmsNorm& norm, std::string_view kernel) {
  if (norm.columns == 0 || norm.columns % 8 != 0 || norm.columns > 32768) {
    return bad_shape(kernel, "columns must be a multiple of 8, at most 32768");
  }
  if (norm.tokens > 0x7fffffffu) return bad_shape(kernel, "too many tokens");
  if (norm.residual == nullptr || norm.weight == nullptr || norm.y == nullptr) {
    return bad_shape(kernel, "residual, weight and y are needed");
  }
  return {};
}

Result<void> rms_norm(const RmsNorm& norm, Start start, Stream stream) {
  constexpr std::string_view name = "rms_norm";
  PENSTOCK_TRY_VOID(check_norm(norm, name));
  if (norm.tokens == 0) return {};
  return check_launch(start_rms_norm(arguments_of(norm), start == Start::overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
