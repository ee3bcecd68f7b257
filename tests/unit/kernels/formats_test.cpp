#include <gtest/gtest.h>

#include "tests/unit/kernels/builders.hpp"

namespace penstock::kernels::test {
namespace {

using cpu::PackedMatrix;

TEST(PackedMatrix, GivesBackExactlyTheValuesOfEveryFormat) {
  for (WeightFormat format : all_formats) {
    const std::size_t columns = cpu::block_columns(format) == 1 ? 37 : 2 * cpu::block_columns(format);
    const TestMatrix matrix = random_matrix(format, 21, columns, 5);
    const PackedMatrix packed = PackedMatrix::pack(matrix.source()).value();
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      Canvas out(columns);
      packed.dequantize_row(row, out.data());
      for (std::size_t c = 0; c < columns; ++c) {
        ASSERT_EQ(out.view()[c], matrix.values[row * columns + c]) << to_string(format) << " " << row << " " << c;
      }
      ASSERT_TRUE(out.guards_hold());
    }
  }
}

TEST(PackedMatrix, PacksTheRowsAndColumnsOfARank) {
  const TestMatrix matrix = random_matrix(WeightFormat::q4_1, 40, 128, 6);
  cpu::MatrixSource source = matrix.source();
  source.row_range = {8, 32};
  source.column_range = {32, 96};
  const PackedMatrix packed = PackedMatrix::pack(source).value();
  ASSERT_EQ(packed.rows(), 24u);
  ASSERT_EQ(packed.columns(), 64u);
  std::vector<float> row(64);
  packed.dequantize_row(3, row.data());
  for (std::size_t c = 0; c < 64; ++c) ASSERT_EQ(row[c], matrix.values[11 * 128 + 32 + c]);
}

TEST(PackedMatrix, RefusesWhatDoesNotFit) {
  const TestMatrix matrix = random_matrix(WeightFormat::q8_0, 4, 64, 7);
  cpu::MatrixSource cut = matrix.source();
  cut.bytes -= 1;
  EXPECT_FALSE(PackedMatrix::pack(cut));
  cpu::MatrixSource odd = matrix.source();
  odd.column_range = {16, 64};
  EXPECT_FALSE(PackedMatrix::pack(odd));
  cpu::MatrixSource outside = matrix.source();
  outside.row_range = {2, 5};
  EXPECT_FALSE(PackedMatrix::pack(outside));
  const TestMatrix other = random_matrix(WeightFormat::q8_0, 4, 96, 8);
  EXPECT_FALSE(PackedMatrix::pack_stacked(std::vector{matrix.source(), other.source()}));
  EXPECT_FALSE(PackedMatrix::pack_gate_up(matrix.source(), matrix.source()));  // 4 rows: not a multiple of 8
}

TEST(Half, RoundTripsEveryValueAndRoundsToEven) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = cpu::f16_to_f32(half);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(cpu::f16_to_f32(cpu::f32_to_f16(wide))));
    } else {
      ASSERT_EQ(cpu::f32_to_f16(wide), half) << bits;
    }
  }
  EXPECT_EQ(cpu::f32_to_f16(1.0f + 0x1p-11f), 0x3c00);  // a tie: to even
  EXPECT_EQ(cpu::f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(cpu::f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(cpu::f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(cpu::f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(cpu::f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

}  // namespace
}  // namespace penstock::kernels::test
