#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

constexpr double float_step = 1e-5;  // of the sum of absolute products: float sums in any order

struct SkinnyCase {
  std::uint32_t rows, columns, tokens;
  bool with_bias = false, with_residual = false;
  OutputType output = OutputType::bf16;
};

std::string name_of(const SkinnyCase& c, SkinnyConfig config) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.rows) + " shape " +
         std::to_string(config.shape) + " cluster " + std::to_string(config.cluster);
}

class SkinnyTest : public GpuTest {
 protected:
  static std::vector<SkinnyConfig> configs() {
    std::vector<SkinnyConfig> all;
    for (std::uint8_t shape = 0; shape < skinny_shapes().size(); ++shape) {
      for (const std::uint8_t cluster : {1, 2, 4, 8}) all.push_back({shape, cluster});
    }
    return all;
  }

  void check(const SkinnyCase& c) {
    Random random(c.rows * 31 + c.columns * 7 + c.tokens);
    const std::uint64_t x_stride = c.columns + 24, y_stride = c.rows + 5, residual_stride = c.rows + 3;
    const Halves weights = random_values(random, std::size_t{c.rows} * c.columns);
    const Halves x = random_values(random, c.tokens * x_stride), bias = random_values(random, c.rows, 5);
    const Halves residual = random_values(random, c.tokens * residual_stride, 5);
    std::vector<double> dense_x;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t i = 0; i < c.columns; ++i) dense_x.push_back(value_of(x[t * x_stride + i]));
    }
    const auto exact = reference::matmul(doubles(weights), dense_x, c.rows, c.columns, c.tokens);
    const auto scale = reference::matmul(absolute(doubles(weights)), absolute(dense_x), c.rows, c.columns, c.tokens);
    std::vector<double> expected, bounds;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t row = 0; row < c.rows; ++row) {
        double value = exact[std::size_t{t} * c.rows + row];
        if (c.with_bias) value += value_of(bias[row]);
        if (c.with_residual) value += value_of(residual[t * residual_stride + row]);
        expected.push_back(value);
        const double rounding = c.output == OutputType::bf16 ? bf16_step * std::abs(value) : 0;
        bounds.push_back(1.01 * rounding + float_step * (scale[std::size_t{t} * c.rows + row] + std::abs(value)));
      }
    }
    const Guarded<Bf16> on_weights(weights, stream_.get()), on_x(x, stream_.get()), on_bias(bias, stream_.get());
    const Guarded<Bf16> on_residual(residual, stream_.get());
    for (const SkinnyConfig config : configs()) {
      const Guarded<Bf16> y(c.tokens * y_stride, stream_.get());
      const Guarded<float> y_float(c.tokens * y_stride, stream_.get());
      SkinnyProduct p;
      p.weights = on_weights.data();
      p.x = on_x.data();
      const bool is_float = c.output == OutputType::f32;
      p.y = is_float ? static_cast<void*>(y_float.data()) : y.data();
      p.output = c.output;
      p.rows = c.rows;
      p.columns = c.columns;
      p.tokens = c.tokens;
      p.x_stride = x_stride;
      p.y_stride = y_stride;
      p.bias = c.with_bias ? on_bias.data() : nullptr;
      p.residual = c.with_residual ? on_residual.data() : nullptr;
      p.residual_stride = residual_stride;
      must(skinny_gemm(p, config, Start::ordered, stream_.get()));
      wait();
      std::vector<double> all;
      if (is_float) {
        const auto values = y_float.read(name_of(c, config));
        all.assign(values.begin(), values.end());
      } else {
        all = doubles(y.read(name_of(c, config)));
      }
      expect_near(without_gaps(all, c.rows, y_stride, name_of(c, config)), expected, bounds, name_of(c, config));
      if (HasFailure()) return;
    }
  }
};

TEST_F(SkinnyTest, MatchesTheReferenceForOddSizes) {
  for (const std::uint32_t tokens : {1u, 2u, 7u, 8u, 9u, 16u}) {
    check({1, 8, tokens});
    check({7, 56, tokens});
    check({100, 1000, tokens});
    check({257, 2056, tokens});
  }
  check({512, 4096, 1});
  check({96, 14336, 16});
}

TEST_F(SkinnyTest, AddsBiasAndResidualAndGivesFloats) {
  check({100, 1000, 3, true, false});
  check({100, 1000, 11, false, true});
  check({100, 1000, 3, true, true});
  check({100, 1000, 11, true, true, OutputType::f32});
  check({33, 520, 1, false, false, OutputType::f32});
}

TEST_F(SkinnyTest, SwiGluMatchesTheReference) {
  for (const std::uint32_t tokens : {1u, 5u, 16u}) {
    constexpr std::uint32_t columns = 520, outputs = 83;
    Random random(tokens);
    const Halves weights = random_values(random, std::size_t{2} * outputs * columns, 0.2);
    const Halves x = random_values(random, std::size_t{tokens} * columns);
    const auto both = reference::matmul(doubles(weights), doubles(x), 2 * outputs, columns, tokens);
    std::vector<double> expected;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t i = 0; i < outputs; ++i) {
        const std::size_t row = std::size_t{t} * 2 * outputs;
        expected.push_back(reference::silu(both[row + i]) * both[row + outputs + i]);
      }
    }
    const Guarded<Bf16> on_weights(weights, stream_.get()), on_x(x, stream_.get());
    for (const SkinnyConfig config : configs()) {
      const Guarded<Bf16> y(std::size_t{tokens} * outputs, stream_.get());
      SkinnyProduct p;
      p.weights = on_weights.data();
      p.x = on_x.data();
      p.y = y.data();
      p.rows = 2 * outputs;
      p.columns = columns;
      p.tokens = tokens;
      p.x_stride = columns;
      p.y_stride = outputs;
      must(skinny_gemm_swiglu(p, config, Start::ordered, stream_.get()));
      wait();
      const std::string what = name_of({2 * outputs, columns, tokens}, config);
      expect_close(doubles(y.read(what)), expected, 1.1 * bf16_step, 2e-4, what);
    }
  }
}

// What one token holds never reaches another, and the same work gives the same bits.
TEST_F(SkinnyTest, TokensAreApartAndResultsRepeat) {
  constexpr std::uint32_t rows = 200, columns = 1024, tokens = 12;
  Random random(5);
  const Halves weights = random_values(random, std::size_t{rows} * columns);
  Halves x = random_values(random, std::size_t{tokens} * columns);
  const Guarded<Bf16> on_weights(weights, stream_.get());
  const auto run = [&](const Halves& input, SkinnyConfig config) {
    const Guarded<Bf16> on_x(input, stream_.get()), y(std::size_t{tokens} * rows, stream_.get());
    SkinnyProduct p;
    p.weights = on_weights.data();
    p.x = on_x.data();
    p.y = y.data();
    p.rows = rows;
    p.columns = columns;
    p.tokens = tokens;
    p.x_stride = columns;
    p.y_stride = rows;
    must(skinny_gemm(p, config, Start::ordered, stream_.get()));
    wait();
    return y.read();
  };
  for (const SkinnyConfig config : configs()) {
    const auto clean = run(x, config);
    EXPECT_EQ(run(x, config), clean);
    Halves dirty = x;
    for (std::uint32_t i = 0; i < columns; ++i) dirty[std::size_t{4} * columns + i] = 0x7fc0;
    auto result = run(dirty, config);
    for (std::uint32_t i = 0; i < rows; ++i) {
      EXPECT_TRUE(std::isnan(value_of(result[std::size_t{4} * rows + i])));
      result[std::size_t{4} * rows + i] = clean[std::size_t{4} * rows + i];
    }
    EXPECT_EQ(result, clean);
  }
}

// 150,000 rows of 16,384: the last row begins beyond 2^31 values.
TEST_F(SkinnyTest, ReadsBeyondTwoToTheThirtyOneValues) {
  constexpr std::uint32_t rows = 150'000, columns = 16'384;
  constexpr std::size_t last = (std::size_t{rows} - 1) * columns;
  Random random(9);
  const Halves row = random_values(random, columns), x = random_values(random, columns);
  auto weights = must(DeviceBuffer::make(std::size_t{rows} * columns * 2));
  must(weights.fill(0, stream_.get()));
  must(weights.upload(row.data(), row.size() * 2, stream_.get(), last * 2));
  const Guarded<Bf16> on_x(x, stream_.get());
  const Guarded<float> y(rows, stream_.get());
  SkinnyProduct p;
  p.weights = weights.as<Bf16>();
  p.x = on_x.data();
  p.y = y.data();
  p.output = OutputType::f32;
  p.rows = rows;
  p.columns = columns;
  p.tokens = 1;
  p.x_stride = columns;
  p.y_stride = rows;
  must(skinny_gemm(p, {0, 1}, Start::ordered, stream_.get()));
  wait();
  const auto values = y.read();
  const double expected = reference::matmul(doubles(row), doubles(x), 1, columns, 1)[0];
  EXPECT_NEAR(values[rows - 1], expected, 0.05);
  for (std::uint32_t i = 0; i + 1 < rows; ++i) ASSERT_EQ(values[i], 0) << i;
}

TEST(SkinnyGemm, RefusesShapesByName) {
  SkinnyProduct p;
  alignas(16) Bf16 value[8] = {};
  p.weights = p.x = value;
  p.y = value;
  p.rows = 1;
  p.columns = p.x_stride = 8;
  p.y_stride = 1;
  const auto message = [&](std::uint32_t tokens, std::uint32_t columns, SkinnyConfig config) {
    p.tokens = tokens;
    p.columns = columns;
    const auto started = skinny_gemm(p, config, Start::ordered, nullptr);
    return started ? std::string() : started.error().message;
  };
  EXPECT_NE(message(17, 8, {}).find("tokens"), std::string::npos);
  EXPECT_NE(message(0, 8, {}).find("tokens"), std::string::npos);
  EXPECT_NE(message(1, 12, {}).find("columns"), std::string::npos);
  EXPECT_NE(message(1, 8, {99, 1}).find("shape"), std::string::npos);
  EXPECT_NE(message(1, 8, {0, 3}).find("cluster"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
