// Every format at every level against double precision, and the guarantee that batching changes no bit.
#include <gtest/gtest.h>

#include "kernels/cpu/kernels.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/unit/kernels/builders.hpp"

namespace penstock::kernels::test {
namespace {

using cpu::ActivationForm;
using cpu::Activations;
using cpu::IsaLevel;
using cpu::Kernels;
using cpu::PackedMatrix;

class Matmul : public LevelTest<std::tuple<IsaLevel, WeightFormat>> {
 protected:
  Matmul() : LevelTest(std::get<0>(GetParam())) {}
  WeightFormat format_ = std::get<1>(GetParam());

  /// Odd where the format allows.
  std::size_t columns(std::size_t about) const {
    const std::size_t unit = cpu::block_columns(format_);
    return unit == 1 ? about | 1 : (about + unit - 1) / unit * unit;
  }
  static constexpr double tolerance = 1e-6;  // rounding of float sums
};

TEST_P(Matmul, AgreesWithDoublePrecision) {
  for (const std::size_t rows : {1u, 16u, 43u}) {
    for (const std::size_t m : {1u, 2u, 3u, 4u, 5u, 7u, 9u, 14u}) {
      const TestMatrix matrix = random_matrix(format_, rows, columns(600), rows);
      const PackedMatrix packed = PackedMatrix::pack(matrix.source()).value();
      const Activations x = random_activations(kernels_, m, matrix.columns, m);
      const auto values = values_read(x, format_);
      const auto expected = reference::matmul(matrix.values, values, rows, matrix.columns, m);
      Canvas y(m * rows);
      kernels_.matmul(packed, x, m, {.y = y.data(), .stride = rows}, {});
      EXPECT_LT(relative_error(y.view(), expected), tolerance) << rows << " rows, m " << m;
      EXPECT_TRUE(y.guards_hold());
    }
  }
}

TEST_P(Matmul, GivesARowTheSameBitsInAnyBatchAndSlicing) {
  const std::size_t rows = 75;
  const std::size_t m = 150;  // more than one block of tokens
  const TestMatrix matrix = random_matrix(format_, rows, columns(1100), 3);
  const PackedMatrix packed = PackedMatrix::pack(matrix.source()).value();
  const Activations all = random_activations(kernels_, m, matrix.columns, 4);
  Canvas together(m * rows);
  for (std::uint32_t i = 0; i < 3; ++i) kernels_.matmul(packed, all, m, {.y = together.data(), .stride = rows}, {i, 3});
  for (const std::size_t chunk : {1u, 2u, 3u, 4u, 6u, 11u, 37u}) {
    Canvas apart(m * rows);
    for (std::size_t first = 0; first < m; first += chunk) {
      const std::size_t count = std::min(chunk, m - first);
      Activations some(count, matrix.columns, ActivationForm::both);
      for (std::size_t r = 0; r < count; ++r) {
        std::copy_n(all.f32(first + r), matrix.columns, some.f32(r));
      }
      kernels_.quantize(some, count, {});
      kernels_.matmul(packed, some, count, {.y = apart.data() + first * rows, .stride = rows}, {});
    }
    EXPECT_TRUE(same_bits(together.view(), apart.view())) << "chunks of " << chunk;
  }
}

TEST_P(Matmul, CarriesNanAndInfinityOn) {
  const TestMatrix matrix = random_matrix(format_, 16, columns(64), 20);
  const PackedMatrix packed = PackedMatrix::pack(matrix.source()).value();
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Activations x = random_activations(kernels_, 2, matrix.columns, 21);
    x.f32(1)[5] = bad;
    kernels_.quantize(x, 2, {});
    Canvas y(2 * 16);
    kernels_.matmul(packed, x, 2, {.y = y.data(), .stride = 16}, {});
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_TRUE(std::isfinite(y.view()[i]));
      EXPECT_FALSE(std::isfinite(y.view()[16 + i]));
    }
  }
}

TEST_P(Matmul, AddsBiasAndResidual) {
  const std::size_t rows = 40;
  const std::size_t m = 5;
  const TestMatrix matrix = random_matrix(format_, rows, columns(256), 9);
  const PackedMatrix packed = PackedMatrix::pack(matrix.source()).value();
  const Activations x = random_activations(kernels_, m, matrix.columns, 10);
  const auto values = values_read(x, format_);
  Random random(11);
  const std::vector<float> bias = normals(random, rows);
  auto expected = reference::matmul(matrix.values, values, rows, matrix.columns, m);
  Canvas y(m * rows);
  for (std::size_t i = 0; i < m * rows; ++i) {
    y.data()[i] = normal(random);
    expected[i] += y.data()[i] + bias[i % rows];
  }
  kernels_.matmul(packed, x, m,
                  {.y = y.data(), .stride = rows, .bias = bias.data(), .residual = y.data(), .residual_stride = rows},
                  {});
  EXPECT_LT(relative_error(y.view(), expected), tolerance);
}

TEST_P(Matmul, CombinesGateAndUp) {
  const std::size_t hidden = 104;  // not a multiple of 32
  const TestMatrix gate = random_matrix(format_, hidden, columns(288), 12);
  const TestMatrix up = random_matrix(format_, hidden, columns(288), 13);
  const PackedMatrix packed = PackedMatrix::pack_gate_up(gate.source(), up.source()).value();
  for (const std::size_t m : {1u, 4u, 10u}) {
    const Activations x = random_activations(kernels_, m, gate.columns, 14);
    const auto values = values_read(x, format_);
    const auto gates = reference::matmul(gate.values, values, hidden, gate.columns, m);
    auto expected = reference::matmul(up.values, values, hidden, gate.columns, m);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= reference::silu(gates[i]);
    Activations out(m, hidden, ActivationForm::both);
    for (std::uint32_t i = 0; i < 2; ++i) kernels_.matmul_swiglu(packed, x, m, out, {i, 2});
    std::vector<float> dense, from_ints;
    for (std::size_t r = 0; r < m; ++r) {
      for (std::size_t c = 0; c < hidden; ++c) {
        dense.push_back(out.f32(r)[c]);
        from_ints.push_back(static_cast<float>(out.q(r)[c]) * out.scale(r)[c / 32]);
      }
    }
    EXPECT_LT(relative_error(dense, expected), 3 * tolerance);
    EXPECT_LT(relative_error(from_ints, expected), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryLevelAndFormat, Matmul,
                         testing::Combine(testing::ValuesIn(cpu::all_isa_levels), testing::ValuesIn(all_formats)),
                         [](const auto& instance) {
                           return std::string(to_string(std::get<0>(instance.param))) + "_" +
                                  std::string(to_string(std::get<1>(instance.param)));
                         });

}  // namespace
}  // namespace penstock::kernels::test
