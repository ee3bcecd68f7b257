#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.hpp"
#include "tests/support/tiny_model.hpp"

namespace penstock::test {

TinyFp8 encode_fp8(const TinyTensor& tensor, const std::string& kind) {
  const bool has_blocks = kind == "block";
  const std::uint64_t high = has_blocks ? 128 : kind == "row" ? 1 : tensor.rows;
  const std::uint64_t wide = has_blocks ? 128 : tensor.columns;
  TinyFp8 out;
  out.scale_rows = (tensor.rows + high - 1) / high;
  out.scale_columns = (tensor.columns + wide - 1) / wide;
  out.scales.resize(out.scale_rows * out.scale_columns);
  const auto scale_of = [&](std::uint64_t i) -> float& {
    return out.scales[i / tensor.columns / high * out.scale_columns + i % tensor.columns / wide];
  };
  for (std::uint64_t i = 0; i < tensor.values.size(); ++i) {
    scale_of(i) = std::max(scale_of(i), std::abs(tensor.values[i]) / 448);
  }
  std::vector<double> values;  // of the codes that are not negative
  for (std::uint8_t code = 0; code < 0x7f; ++code) values.push_back(kernels::reference::e4m3(code));
  for (std::uint64_t i = 0; i < tensor.values.size(); ++i) {
    const double wanted = std::abs(tensor.values[i]) / double{scale_of(i)};
    const auto above = std::lower_bound(values.begin(), values.end() - 1, wanted);
    const bool is_lower = above != values.begin() && wanted - *(above - 1) < *above - wanted;
    const auto code = static_cast<unsigned>(above - values.begin()) - (is_lower ? 1 : 0);
    out.codes += static_cast<char>(code | (tensor.values[i] < 0 ? 0x80u : 0u));
  }
  return out;
}

std::string fp8_config(const std::string& kind) {
  if (kind.empty()) return {};
  return kind == "block" ? R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]})"
                         : R"(,"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized"})";
}

}  // namespace penstock::test
