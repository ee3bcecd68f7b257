#include "worker/model/mxfp4.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/half.hpp"

namespace penstock::worker {
namespace {

constexpr float e2m1_values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

float e2m1(unsigned code) {
  const float magnitude = e2m1_values[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace

void Mxfp4Matrix::widen_row(std::uint64_t row, std::uint16_t* out) const {
  const std::uint64_t blocks = columns / block;
  const std::byte* code = codes.bytes.data() + row * columns / 2;
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const int exponent = std::to_integer<int>(scales.bytes[row * blocks + b]) - 127;
    for (std::uint64_t i = 0; i < block; i += 2, ++code) {
      const auto pair = std::to_integer<unsigned>(*code);
      *out++ = kernels::cpu::f32_to_bf16(std::ldexp(e2m1(pair & 15), exponent));
      *out++ = kernels::cpu::f32_to_bf16(std::ldexp(e2m1(pair >> 4), exponent));
    }
  }
}

Result<Mxfp4Matrix> take_mxfp4(TensorTable& table, const std::string& name, std::uint64_t matrices, std::uint64_t rows,
                               std::uint64_t columns) {
  if (columns % Mxfp4Matrix::block != 0) {
    return make_error(ErrorCode::unsupported, "tensor " + name + "_blocks has rows of " + std::to_string(columns) +
                                                  ", no multiple of " + std::to_string(Mxfp4Matrix::block));
  }
  Mxfp4Matrix matrix;
  matrix.rows = matrices * rows;
  matrix.columns = columns;
  const std::uint64_t blocks = columns / Mxfp4Matrix::block;
  PENSTOCK_TRY(matrix.codes, table.take_bytes(name + "_blocks", matrix.rows * blocks, Mxfp4Matrix::block / 2));
  PENSTOCK_TRY(matrix.scales, table.take_bytes(name + "_scales", matrix.rows, blocks));
  const auto is_beyond = [](std::byte scale) { return std::to_integer<unsigned>(scale) > Mxfp4Matrix::scale_max; };
  if (std::any_of(matrix.scales.bytes.begin(), matrix.scales.bytes.end(), is_beyond)) {
    return make_error(ErrorCode::data_loss, "tensor " + name + "_scales holds a scale beyond 2^125");
  }
  return matrix;
}

}  // namespace penstock::worker
