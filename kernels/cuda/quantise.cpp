#include "kernels/cuda/quantise.hpp"

#include "kernels/cuda/quantise_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::string_view name = "quantise";

Result<QuantiseArguments> arguments_of(const Bf16* x, const Fp8Tokens& y, std::uint32_t tokens, std::uint32_t columns) {
  const bool has_blocks = y.kind == Fp8Scales::block;
  if (y.kind == Fp8Scales::tensor) return bad_shape(name, "a scale for all tokens is not supported");
  if (columns == 0 || columns > 32768 || columns % (has_blocks ? 128 : 16) != 0) {
    return bad_shape(name, "columns must be a multiple of 16, of 128 with blocks, at most 32768");
  }
  if (tokens > 0x7fffffffu) return bad_shape(name, "too many tokens");
  if (x == nullptr || y.codes == nullptr || y.scales == nullptr) {
    return bad_shape(name, "x, codes and scales are needed");
  }
  return QuantiseArguments{x,
                           nullptr,
                           y.codes,
                           y.scales,
                           has_blocks ? static_cast<std::int64_t>(fp8_scale_stride(tokens)) : 0,
                           static_cast<std::int32_t>(tokens),
                           static_cast<std::int32_t>(columns),
                           0};
}

Result<void> start_source(const QuantiseArguments& a, QuantiseSource source, Start start, Stream stream) {
  if (a.tokens == 0) return {};
  return check_launch(start_quantise(a, source, start == Start::overlapped, stream), name);
}

}  // namespace

std::uint64_t bytes_of(const QuantisedRows& rows) {
  return 3ull * rows.tokens * rows.columns + sizeof(float) * fp8_scale_count(rows.tokens, rows.columns, rows.y.kind);
}

Result<void> quantise_rows(const QuantisedRows& work, Start start, Stream stream) {
  PENSTOCK_TRY(const QuantiseArguments a, arguments_of(work.x, work.y, work.tokens, work.columns));
  return start_source(a, QuantiseSource::rows, start, stream);
}

Result<void> quantise_swiglu(const QuantisedRows& work, Start start, Stream stream) {
  PENSTOCK_TRY(const QuantiseArguments a, arguments_of(work.x, work.y, work.tokens, work.columns));
  return start_source(a, QuantiseSource::swiglu, start, stream);
}

Result<void> quantise_norm(const RmsNorm& norm, const Fp8Tokens& y, Start start, Stream stream) {
  PENSTOCK_TRY(QuantiseArguments a, arguments_of(norm.residual, y, norm.tokens, norm.columns));
  if (norm.weight == nullptr) return bad_shape(name, "a norm's weight is needed");
  a.weight = norm.weight;
  a.epsilon = norm.epsilon;
  return start_source(a, QuantiseSource::norm, start, stream);
}

}  // namespace penstock::kernels::cuda
