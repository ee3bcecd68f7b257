// Routing and the products of experts at every level against double precision, and the guarantee that which rows share
// an expert changes no bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/kernels.hpp"
#include "kernels/reference/experts.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/unit/kernels/builders.hpp"

namespace penstock::kernels::test {
namespace {

using cpu::ActivationForm;
using cpu::Activations;
using cpu::ExpertRows;
using cpu::IsaLevel;
using cpu::PackedMatrix;
using cpu::RouteOptions;

class Routing : public LevelTest<IsaLevel> {
 protected:
  Routing() : LevelTest(GetParam()) {}

  struct Choice {
    std::vector<std::uint32_t> experts;
    std::vector<float> weights;
  };
  Choice route(const std::vector<float>& logits, const RouteOptions& options, std::uint32_t slices = 1) const {
    const std::size_t m = logits.size() / options.experts;
    Choice out{std::vector<std::uint32_t>(m * options.per_token), {}};
    Canvas weights(m * options.per_token);
    for (std::uint32_t i = 0; i < slices; ++i) {
      kernels_.route(logits.data(), m, options, out.experts.data(), weights.data(), {i, slices});
    }
    EXPECT_TRUE(weights.guards_hold());
    out.weights.assign(weights.view().begin(), weights.view().end());
    return out;
  }
};

TEST_P(Routing, AgreesWithDoublePrecision) {
  Random random(3);
  const std::size_t m = 9;
  for (const std::size_t experts : {1u, 5u, 8u, 60u, 128u}) {
    for (const std::size_t per_token : {1u, 2u, 8u, 11u}) {
      if (per_token > experts) continue;
      std::vector<float> logits = normals(random, m * experts);
      for (float& logit : logits) logit *= 4;
      for (const bool renormalises : {false, true}) {
        const Choice choice = route(logits, {experts, per_token, renormalises}, 4);
        for (std::size_t row = 0; row < m; ++row) {
          const reference::Vector values(logits.begin() + static_cast<std::ptrdiff_t>(row * experts),
                                         logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * experts));
          const auto expected = reference::route(
              values, per_token, renormalises ? reference::RoutingSum::chosen : reference::RoutingSum::all);
          for (std::size_t i = 0; i < per_token; ++i) {
            ASSERT_EQ(choice.experts[row * per_token + i], expected.experts[i]) << experts << " experts, row " << row;
            const double weight = expected.weights[i];
            ASSERT_NEAR(choice.weights[row * per_token + i], weight, 1e-6 * weight + 1e-37);
          }
        }
      }
    }
  }
}

TEST_P(Routing, OfEqualsTheLowerIndexComesFirst) {
  const std::vector<float> logits{1, 3, 2, 3, 2, 3, 0, 2};
  EXPECT_EQ(route(logits, {8, 5, true}).experts, (std::vector<std::uint32_t>{1, 3, 5, 2, 4}));
  EXPECT_EQ(route(std::vector<float>(8, -0.5f), {8, 3, true}).experts, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST_P(Routing, NanComesLastAndStaysVisible) {
  const float nan = std::nanf("");
  const Choice choice = route({nan, 1, nan, 2}, {4, 3, true});
  EXPECT_EQ(choice.experts, (std::vector<std::uint32_t>{3, 1, 0}));
  EXPECT_TRUE(std::isnan(choice.weights[0]));
  const Choice all = route({nan, nan, nan, nan}, {4, 2, false});
  EXPECT_EQ(all.experts, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_TRUE(std::isnan(all.weights[0]));
  EXPECT_TRUE(std::isnan(route({nan, 1, 1, 1}, {4, 2, false}).weights[0]));
}

INSTANTIATE_TEST_SUITE_P(EveryLevel, Routing, testing::ValuesIn(cpu::all_isa_levels),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

class ExpertProducts : public LevelTest<std::tuple<IsaLevel, WeightFormat>> {
 protected:
  static constexpr std::size_t hidden = 256, ffn = 256, m = 140;

  ExpertProducts()
      : LevelTest(std::get<0>(GetParam())),
        gate_(random_matrix(format_, ffn, hidden, 1)),
        up_(random_matrix(format_, ffn, hidden, 2)),
        down_(random_matrix(format_, rows_out, ffn, 3)),
        gate_up_(PackedMatrix::pack_gate_up(gate_.source(), up_.source()).value()),
        packed_down_(PackedMatrix::pack(down_.source()).value()),
        x_(random_activations(kernels_, m, hidden, 4)) {}

  /// Holds some rows to the reference; biases in the packed order, with the clamped activation, or none.
  void expect_agreement(const std::vector<float>& gate_up_bias, const std::vector<float>& down_bias);

  /// Adds the expert's output for `rows` to y, with products in `slices` slices and `first` rows of others before.
  void add_expert(const std::vector<std::uint32_t>& rows, const std::vector<float>& weights, std::size_t first,
                  std::uint32_t slices, float* y) const {
    const ExpertRows of{rows.data(), weights.data(), rows.size(), first};
    Activations inner(first + rows.size(), ffn, ActivationForm::both);
    for (std::uint32_t i = 0; i < slices; ++i) kernels_.expert_gate_up(gate_up_, x_, of, options_, inner, {i, slices});
    for (std::uint32_t i = 0; i < slices; ++i) {
      kernels_.expert_down(packed_down_, inner, of, options_, y, rows_out, {i, slices});
    }
  }

  static constexpr std::size_t rows_out = 43;  // the last tile has 11
  WeightFormat format_ = std::get<1>(GetParam());
  TestMatrix gate_, up_, down_;
  PackedMatrix gate_up_, packed_down_;
  Activations x_;
  cpu::ExpertOptions options_;
};

TEST_P(ExpertProducts, AgreeWithDoublePrecision) {
  expect_agreement({}, {});
}

TEST_P(ExpertProducts, AddBiasesAndClamp) {
  Random random(6);
  std::vector<float> gate_up_bias = normals(random, 2 * ffn), down_bias = normals(random, rows_out);
  for (float& value : gate_up_bias) value *= 5;  // so that both limits bite
  options_ = {gate_up_bias.data(), down_bias.data(), cpu::GatedActivation::clamped};
  expect_agreement(gate_up_bias, down_bias);
}

void ExpertProducts::expect_agreement(const std::vector<float>& gate_up_bias, const std::vector<float>& down_bias) {
  const std::vector<std::uint32_t> rows{0, 3, 4, 17, 139};
  const std::vector<float> weights{0.5f, 0.125f, 1, 0.3f, 0.01f};
  Random random(5);
  const std::vector<float> before = normals(random, m * rows_out);
  Canvas y(m * rows_out);
  std::copy(before.begin(), before.end(), y.data());
  add_expert(rows, weights, 6, 1, y.data());
  EXPECT_TRUE(y.guards_hold());
  const auto values = values_read(x_, format_);
  reference::Vector expected(before.begin(), before.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(rows[i] * hidden);
    const reference::Vector in(begin, begin + hidden);
    auto inner = reference::matmul(gate_.values, in, ffn, hidden, 1);
    const auto ups = reference::matmul(up_.values, in, ffn, hidden, 1);
    for (std::size_t c = 0; c < ffn; ++c) {
      const std::size_t packed = c / 8 * 16 + c % 8;
      inner[c] = gate_up_bias.empty() ? reference::silu(inner[c]) * ups[c]
                                      : reference::clamped_swiglu(inner[c] + double{gate_up_bias[packed]},
                                                                  ups[c] + double{gate_up_bias[packed + 8]});
    }
    auto out = reference::matmul(down_.values, inner, rows_out, ffn, 1);
    for (std::size_t c = 0; c < down_bias.size(); ++c) out[c] += double{down_bias[c]};
    for (std::size_t c = 0; c < rows_out; ++c) expected[rows[i] * rows_out + c] += double{weights[i]} * out[c];
  }
  EXPECT_LT(relative_error(y.view(), expected), 1e-4);
  for (std::size_t row = 0; row < m; ++row) {
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) continue;
    EXPECT_TRUE(same_bits(y.view().subspan(row * rows_out, rows_out), {before.data() + row * rows_out, rows_out}));
  }
}

TEST_P(ExpertProducts, GiveARowTheSameBitsWithAnyOthersAndSlices) {
  std::vector<std::uint32_t> all(m);
  std::vector<float> weights(m);
  for (std::uint32_t i = 0; i < m; ++i) {
    all[i] = (i * 37) % m;
    weights[i] = 1.0f / static_cast<float>(i + 1);
  }
  std::vector<float> together(m * rows_out);
  add_expert(all, weights, 0, 3, together.data());
  for (const std::size_t chunk : {1u, 2u, 5u, 13u, 129u}) {
    std::vector<float> apart(m * rows_out);
    for (std::size_t at = 0; at < m; at += chunk) {
      const std::size_t end = std::min<std::size_t>(m, at + chunk);
      add_expert(
          {all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(end)},
          {weights.begin() + static_cast<std::ptrdiff_t>(at), weights.begin() + static_cast<std::ptrdiff_t>(end)},
          at % 3, 1, apart.data());
    }
    EXPECT_TRUE(same_bits(together, apart)) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryLevelAndFormat, ExpertProducts,
                         testing::Combine(testing::ValuesIn(cpu::all_isa_levels), testing::ValuesIn(all_formats)),
                         [](const auto& instance) {
                           return std::string(to_string(std::get<0>(instance.param))) + "_" +
                                  std::string(to_string(std::get<1>(instance.param)));
                         });

}  // namespace
}  // namespace penstock::kernels::test
