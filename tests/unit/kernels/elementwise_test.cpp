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

class Elementwise : public LevelTest<IsaLevel> {
 protected:
  Elementwise() : LevelTest(GetParam()) {}
};

TEST_P(Elementwise, QuantisationKeepsFifteenBitsOfEachBlock) {
  const std::size_t columns = 100;  // the last block has 4 columns
  Activations x = random_activations(kernels_, 3, columns, 1);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t b = 0; b < x.blocks(); ++b) {
      float largest = 0;
      std::int32_t sum = 0;
      for (std::size_t c = b * 32; c < std::min(columns, b * 32 + 32); ++c) {
        largest = std::max(largest, std::fabs(x.f32(row)[c]));
        sum += x.q(row)[c];
      }
      for (std::size_t c = b * 32; c < std::min(columns, b * 32 + 32); ++c) {
        const float back = static_cast<float>(x.q(row)[c]) * x.scale(row)[b];
        EXPECT_NEAR(back, x.f32(row)[c], largest / 65534 * 1.01f);
      }
      EXPECT_EQ(x.sum(row)[b], sum);
      EXPECT_EQ(x.scaled_sum(row)[b], x.scale(row)[b] * static_cast<float>(sum));
    }
    for (std::size_t c = columns; c < x.blocks() * 32; ++c) EXPECT_EQ(x.q(row)[c], 0);
  }
}

TEST_P(Elementwise, QuantisationOfZerosAndTinyValuesIsZero) {
  Activations x(1, 64, ActivationForm::both);
  for (std::size_t c = 32; c < 64; ++c) x.f32(0)[c] = 1e-40f;
  kernels_.quantize(x, 1, {});
  for (std::size_t c = 0; c < 64; ++c) EXPECT_EQ(x.q(0)[c], 0);
}

TEST_P(Elementwise, RmsNormAgreesAndIgnoresSlicing) {
  for (const std::size_t columns : {7u, 64u, 576u, 1001u}) {
    Random random(columns);
    const std::size_t m = 5;
    std::vector<float> x = normals(random, m * columns);
    const std::vector<float> weight = normals(random, columns);
    Activations out(m, columns, ActivationForm::both);
    for (std::uint32_t i = 0; i < 2; ++i) {
      kernels_.rms_norm(x.data(), columns, m, weight.data(), 1e-5f, out, {i, 2});
    }
    for (std::size_t row = 0; row < m; ++row) {
      const reference::Vector values(x.begin() + row * columns, x.begin() + (row + 1) * columns);
      const auto expected = reference::rms_norm(values, {weight.begin(), weight.end()}, 1e-5);
      EXPECT_LT(relative_error({out.f32(row), columns}, expected), 1e-6);
      Activations alone(1, columns, ActivationForm::both);
      kernels_.rms_norm(x.data() + row * columns, columns, 1, weight.data(), 1e-5f, alone, {});
      EXPECT_TRUE(same_bits({out.f32(row), columns}, {alone.f32(0), columns}));
      EXPECT_EQ(std::memcmp(out.q(row), alone.q(0), 2 * columns), 0);
    }
  }
}

TEST_P(Elementwise, AddRmsNormAddsFirst) {
  Random random(3);
  std::vector<float> x = normals(random, 96);
  const std::vector<float> delta = normals(random, 96);
  const std::vector<float> weight = normals(random, 96);
  std::vector<float> total = x;
  for (std::size_t i = 0; i < 96; ++i) total[i] += delta[i];
  Activations a(1, 96, ActivationForm::f32);
  Activations b(1, 96, ActivationForm::f32);
  kernels_.add_rms_norm(x.data(), delta.data(), 96, 1, weight.data(), 1e-5f, a, {});
  kernels_.rms_norm(total.data(), 96, 1, weight.data(), 1e-5f, b, {});
  EXPECT_TRUE(same_bits(x, total));
  EXPECT_TRUE(same_bits({a.f32(0), 96}, {b.f32(0), 96}));
}

TEST_P(Elementwise, SwigluAgreesFarIntoBothTails) {
  const std::size_t columns = 77;
  std::vector<float> gate(columns), up(columns, 1.5f);
  std::vector<double> expected(columns);
  for (std::size_t i = 0; i < columns; ++i) {
    gate[i] = -150.0f + 4.0f * static_cast<float>(i);
    expected[i] = reference::silu(gate[i]) * 1.5;
  }
  Activations out(1, columns, ActivationForm::f32);
  kernels_.swiglu(gate.data(), up.data(), columns, 1, out, {});
  for (std::size_t i = 0; i < columns; ++i) {
    EXPECT_NEAR(out.f32(0)[i], expected[i], 1e-6 * std::fabs(expected[i]) + 1e-30) << gate[i];
  }
}

TEST_P(Elementwise, ArgmaxTakesTheFirstOfEqualsAndNeverNan) {
  std::vector<float> logits(1003, -2.0f);
  EXPECT_EQ(kernels_.argmax(logits.data(), logits.size()), 0u);
  logits[1002] = logits[700] = 5.0f;
  EXPECT_EQ(kernels_.argmax(logits.data(), logits.size()), 700u);
  logits[1001] = 6.0f;
  logits[3] = std::nanf("");
  EXPECT_EQ(kernels_.argmax(logits.data(), logits.size()), 1001u);
  for (float& value : logits) value = std::nanf("");
  EXPECT_EQ(kernels_.argmax(logits.data(), logits.size()), 0u);
}

TEST_P(Elementwise, EmbedGivesTheRowsAsked) {
  const TestMatrix matrix = random_matrix(WeightFormat::q8_0, 50, 64, 4);
  const cpu::PackedMatrix packed = cpu::PackedMatrix::pack(matrix.source()).value();
  const std::vector<TokenId> tokens = {49, 0, 17};
  Canvas out(3 * 64);
  for (std::uint32_t i = 0; i < 2; ++i) kernels_.embed(packed, tokens, out.data(), 64, {i, 2});
  for (std::size_t i = 0; i < 3 * 64; ++i) ASSERT_EQ(out.view()[i], matrix.values[tokens[i / 64] * 64 + i % 64]);
}

INSTANTIATE_TEST_SUITE_P(EveryLevel, Elementwise, testing::ValuesIn(cpu::all_isa_levels),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

TEST(CpuFeatures, PortableIsAlwaysThere) {
  EXPECT_TRUE(cpu::is_supported(IsaLevel::portable));
  EXPECT_EQ(cpu::supported_isa_levels().back(), cpu::best_isa_level());
}

}  // namespace
}  // namespace penstock::kernels::test
