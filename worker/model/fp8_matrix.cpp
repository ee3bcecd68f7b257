#include "worker/model/fp8_matrix.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/half.hpp"

namespace penstock::worker {
namespace {

constexpr std::uint64_t scale_block = 128;

std::uint64_t blocks_of(std::uint64_t size) {
  return (size + scale_block - 1) / scale_block;
}

Error wrong_shape(const std::string& name, const TensorView& scales) {
  return make_error(ErrorCode::unsupported,
                    "tensor " + name + " has shape [" + std::to_string(scales.rows) + ", " +
                        std::to_string(scales.columns) +
                        "]; scales must be one for the matrix, one for each row or one for each 128 x 128 weights");
}

Result<Fp8Granularity> granularity_of(const std::string& name, const TensorView& scales, const Fp8Matrix& matrix) {
  const std::uint64_t count = scales.rows * scales.columns;
  if (count == 1) return Fp8Granularity::tensor;
  if (count == matrix.rows && (scales.rows == 1 || scales.columns == 1)) return Fp8Granularity::row;
  if (scales.rows == blocks_of(matrix.rows) && scales.columns == blocks_of(matrix.columns)) {
    return Fp8Granularity::block;
  }
  return wrong_shape(name, scales);
}

}  // namespace

float e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu, sign = code & 0x80u;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign << 24 | 0x7fc00000u);
  // Its seven bits as upper mantissa and lower exponent bits of a float are the value times 2^-120.
  return std::bit_cast<float>(sign << 24 | magnitude << 20) * 0x1p120f;
}

float Fp8Matrix::scale_of(std::uint64_t row, std::uint64_t column) const {
  switch (granularity) {
    case Fp8Granularity::tensor:
      return scales[0];
    case Fp8Granularity::row:
      return scales[row];
    case Fp8Granularity::block:
      return scales[row / scale_block * blocks_of(columns) + column / scale_block];
  }
  return 0;
}

void Fp8Matrix::widen_row(std::uint64_t row, std::uint16_t* out) const {
  const std::uint8_t* const from = codes.data() + row * columns;
  for (std::uint64_t first = 0; first < columns; first += scale_block) {
    const float scale = scale_of(row, first);
    const std::uint64_t end = std::min(columns, first + scale_block);
    for (std::uint64_t i = first; i < end; ++i) out[i] = kernels::cpu::f32_to_bf16(e4m3_to_f32(from[i]) * scale);
  }
}

Result<Fp8Matrix> take_fp8(TensorTable& table, const std::string& name, std::uint64_t rows, std::uint64_t columns) {
  PENSTOCK_TRY(const TensorView codes, table.take(name + ".weight", rows, columns));
  Fp8Matrix matrix{rows, columns, std::vector<std::uint8_t>(rows * columns), {}, Fp8Granularity::tensor};
  std::memcpy(matrix.codes.data(), codes.bytes.data(), matrix.codes.size());
  table.give_back(codes);
  const auto is_nan = [](std::uint8_t code) { return (code & 0x7fu) == 0x7fu; };
  if (std::any_of(matrix.codes.begin(), matrix.codes.end(), is_nan)) {
    return make_error(ErrorCode::data_loss, "tensor " + name + ".weight has a weight that is NaN");
  }
  const std::string inverse = name + ".weight_scale_inv";
  const std::string scale_name = table.contains(inverse) ? inverse : name + ".weight_scale";
  const auto found = table.tensors().find(scale_name);
  if (found == table.tensors().end()) {
    return make_error(ErrorCode::data_loss, "tensor " + scale_name + " is missing, which FP8 weights need");
  }
  const TensorView shape = found->second;
  PENSTOCK_TRY(matrix.granularity, granularity_of(scale_name, shape, matrix));
  PENSTOCK_TRY(matrix.scales, table.take_floats(scale_name, shape.rows, shape.columns));
  const auto is_bad = [](float scale) { return !std::isfinite(scale); };
  if (std::any_of(matrix.scales.begin(), matrix.scales.end(), is_bad)) {
    return make_error(ErrorCode::data_loss, "tensor " + scale_name + " has a scale that is no number");
  }
  table.drop(name + ".input_scale");
  return matrix;
}

}  // namespace penstock::worker
