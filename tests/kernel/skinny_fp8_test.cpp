#include "kernels/cuda/skinny_fp8.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

constexpr double float_step = 1e-5;  // of the sum of absolute products: float sums in any order
constexpr std::uint32_t scale_block = 128;

using Bytes = std::vector<std::uint8_t>;

/// Weights with their scales, and what they are worth.
struct Matrix {
  Bytes codes;
  std::vector<float> scales;
  Fp8Scales kind;
  std::vector<double> values;
};

std::size_t scale_index(Fp8Scales kind, std::uint32_t row, std::uint32_t column, std::uint32_t columns) {
  switch (kind) {
    case Fp8Scales::tensor:
      return 0;
    case Fp8Scales::row:
      return row;
    case Fp8Scales::block:
      return std::size_t{row / scale_block} * ((columns + scale_block - 1) / scale_block) + column / scale_block;
  }
  return 0;
}

/// Every code but NaN, subnormals among them, and scales that differ by up to 16 times.
Matrix random_matrix(Random& random, Fp8Scales kind, std::uint32_t rows, std::uint32_t columns, double scale = 0.01) {
  Matrix m{Bytes(std::size_t{rows} * columns), {}, kind, {}};
  m.scales.resize(scale_index(kind, rows - 1, columns - 1, columns) + 1);
  for (float& value : m.scales) value = static_cast<float>(scale * std::exp2(4 * random.uniform() - 2));
  m.values.reserve(m.codes.size());
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t column = 0; column < columns; ++column) {
      auto code = static_cast<std::uint8_t>(random.next() >> 32);
      if ((code & 0x7fu) == 0x7fu) code ^= 1u;
      m.codes[std::size_t{row} * columns + column] = code;
      m.values.push_back(reference::e4m3(code) * double{m.scales[scale_index(kind, row, column, columns)]});
    }
  }
  return m;
}

/// A matrix where the kernel finds it.
class OnDevice {
 public:
  OnDevice(const Matrix& m, Stream stream) : codes_(m.codes, stream), scales_(m.scales, stream), kind_(m.kind) {}
  Fp8Weights get() const { return {codes_.data(), scales_.data(), kind_}; }

 private:
  Guarded<std::uint8_t> codes_;
  Guarded<float> scales_;
  Fp8Scales kind_;
};

struct Case {
  std::uint32_t rows, columns, tokens;
  Fp8Scales kind;
  bool with_bias = false, with_residual = false;
  OutputType output = OutputType::bf16;
};

std::string name_of(const Case& c, SkinnyConfig config) {
  static constexpr const char* kinds[] = {"tensor", "row", "block"};
  return std::to_string(c.tokens) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.rows) + " " +
         kinds[static_cast<int>(c.kind)] + " shape " + std::to_string(config.shape) + " cluster " +
         std::to_string(config.cluster);
}

class SkinnyFp8Test : public GpuTest {
 protected:
  static std::vector<SkinnyConfig> configs() {
    std::vector<SkinnyConfig> all;
    for (std::uint8_t shape = 0; shape < skinny_fp8_shapes().size(); ++shape) {
      for (const std::uint8_t cluster : {1, 2, 4, 8}) all.push_back({shape, cluster});
    }
    return all;
  }
  static constexpr Fp8Scales kinds[] = {Fp8Scales::tensor, Fp8Scales::row, Fp8Scales::block};

  /// `token_scale` multiplies token t by its t-th power.
  void check(const Case& c, double token_scale = 1) {
    Random random(c.rows * 31 + c.columns * 7 + c.tokens);
    const std::uint64_t x_stride = c.columns + 24, y_stride = c.rows + 5, residual_stride = c.rows + 3;
    const Matrix weights = random_matrix(random, c.kind, c.rows, c.columns);
    Halves x = random_values(random, c.tokens * x_stride);
    const Halves bias = random_values(random, c.rows, 5),
                 residual = random_values(random, c.tokens * residual_stride, 5);
    std::vector<double> dense_x;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t i = 0; i < c.columns; ++i) {
        Bf16& value = x[t * x_stride + i];
        value = rounded(value_of(value) * std::pow(token_scale, t));
        dense_x.push_back(value_of(value));
      }
    }
    const auto exact = reference::matmul(weights.values, dense_x, c.rows, c.columns, c.tokens);
    const auto scale = reference::matmul(absolute(weights.values), absolute(dense_x), c.rows, c.columns, c.tokens);
    std::vector<double> lost;  // of tokens too small for f16
    for (const double value : dense_x) lost.push_back(std::abs(value) < std::exp2(-13) ? std::exp2(-21) : 0);
    const auto losses = reference::matmul(absolute(weights.values), lost, c.rows, c.columns, c.tokens);
    std::vector<double> expected, bounds;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t row = 0; row < c.rows; ++row) {
        double value = exact[std::size_t{t} * c.rows + row];
        if (c.with_bias) value += value_of(bias[row]);
        if (c.with_residual) value += value_of(residual[t * residual_stride + row]);
        expected.push_back(value);
        const double rounding = c.output == OutputType::bf16 ? bf16_step * std::abs(value) : 0;
        bounds.push_back(1.01 * rounding + float_step * (scale[std::size_t{t} * c.rows + row] + std::abs(value)) +
                         losses[std::size_t{t} * c.rows + row]);
      }
    }
    const OnDevice on_weights(weights, stream_.get());
    const Guarded<Bf16> on_x(x, stream_.get()), on_bias(bias, stream_.get()), on_residual(residual, stream_.get());
    for (const SkinnyConfig config : configs()) {
      const Guarded<Bf16> y(c.tokens * y_stride, stream_.get());
      const Guarded<float> y_float(c.tokens * y_stride, stream_.get());
      const bool is_float = c.output == OutputType::f32;
      SkinnyProduct p;
      p.x = on_x.data();
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
      must(skinny_fp8(p, on_weights.get(), config, Start::ordered, stream_.get()));
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

TEST_F(SkinnyFp8Test, MatchesTheReferenceForOddSizes) {
  for (const Fp8Scales kind : kinds) {
    for (const std::uint32_t tokens : {1u, 2u, 7u, 8u, 9u, 16u}) {
      check({1, 16, tokens, kind});
      check({7, 112, tokens, kind});
      check({100, 1008, tokens, kind});
      check({257, 2064, tokens, kind});
    }
    check({512, 4096, 1, kind});
    check({96, 14336, 16, kind});
  }
}

TEST_F(SkinnyFp8Test, AddsBiasAndResidualAndGivesFloats) {
  for (const Fp8Scales kind : kinds) {
    check({100, 1008, 3, kind, true, false});
    check({100, 1008, 11, kind, false, true});
    check({100, 1008, 11, kind, true, true, OutputType::f32});
    check({33, 528, 1, kind, false, false, OutputType::f32});
  }
}

// A code alone in a row and a token of one gives that code's value, to the bit.
TEST_F(SkinnyFp8Test, EveryCodeIsExact) {
  constexpr std::uint32_t rows = 256, columns = 32;
  Matrix weights{Bytes(std::size_t{rows} * columns), {1.0f}, Fp8Scales::tensor, {}};
  for (std::uint32_t row = 0; row < rows; ++row)
    weights.codes[row * columns + row % columns] = static_cast<std::uint8_t>(row);
  const Halves x(columns, rounded(1));
  const OnDevice on_weights(weights, stream_.get());
  const Guarded<Bf16> on_x(x, stream_.get());
  const Guarded<float> y(rows, stream_.get());
  SkinnyProduct p;
  p.x = on_x.data();
  p.y = y.data();
  p.output = OutputType::f32;
  p.rows = rows;
  p.columns = columns;
  p.tokens = 1;
  p.x_stride = columns;
  p.y_stride = rows;
  must(skinny_fp8(p, on_weights.get(), {0, 1}, Start::ordered, stream_.get()));
  wait();
  const auto values = y.read();
  for (std::uint32_t code = 0; code < rows; ++code) {
    if ((code & 0x7fu) == 0x7fu) continue;
    EXPECT_EQ(values[code], reference::e4m3(static_cast<std::uint8_t>(code))) << code;
  }
}

// Tokens become f16 inside: all that they usually are in a model is exact.
TEST_F(SkinnyFp8Test, TokensOfManyMagnitudesAreExact) {
  for (const Fp8Scales kind : kinds) {
    check({40, 1008, 6, kind, false, false, OutputType::f32}, 0.1);  // 1e-5 and below, with few values
    check({40, 1008, 8, kind}, 6);
  }
}

// A token alone, times a weight of one: what the header says of its range, to the bit.
TEST_F(SkinnyFp8Test, TokensBeyondTheRangeOfHalvesAreRoundedOrCut) {
  constexpr std::uint32_t columns = 16;
  Bytes codes(columns);
  codes[0] = 0x38;  // 1
  const Guarded<std::uint8_t> on_codes(codes, stream_.get());
  const Guarded<float> scale(std::vector<float>{1}, stream_.get());
  const auto worth = [&](double value) {
    Halves x(columns);
    x[0] = rounded(value);
    const Guarded<Bf16> on_x(x, stream_.get());
    const Guarded<float> y(1, stream_.get());
    SkinnyProduct p;
    p.x = on_x.data();
    p.y = y.data();
    p.output = OutputType::f32;
    p.rows = p.tokens = 1;
    p.columns = p.x_stride = columns;
    p.y_stride = 1;
    must(skinny_fp8(p, {on_codes.data(), scale.data(), Fp8Scales::tensor}, {0, 1}, Start::ordered, stream_.get()));
    wait();
    return double{y.read()[0]};
  };
  for (const double mantissa : {1.0, 1.0078125, 1.9921875}) {
    for (int exponent = -13; exponent < 20; ++exponent) {
      EXPECT_EQ(worth(std::ldexp(mantissa, exponent)), std::ldexp(mantissa, exponent)) << exponent;
    }
    for (const int exponent : {-14, -17, -20, -25, -60, -120}) {
      EXPECT_NEAR(worth(-std::ldexp(mantissa, exponent)), -std::ldexp(mantissa, exponent), std::exp2(-21)) << exponent;
    }
  }
  for (const double large : {1.1e6, 1e9, 1e30}) EXPECT_EQ(worth(-large), -65504.0 * 16);
  EXPECT_TRUE(std::isnan(worth(std::nan(""))));
}

TEST_F(SkinnyFp8Test, SwiGluMatchesTheReference) {
  for (const Fp8Scales kind : kinds) {
    for (const std::uint32_t tokens : {1u, 5u, 16u}) {
      constexpr std::uint32_t columns = 528, outputs = 203;
      Random random(tokens);
      const Matrix weights = random_matrix(random, kind, 2 * outputs, columns, 0.001);
      const Halves x = random_values(random, std::size_t{tokens} * columns);
      const auto both = reference::matmul(weights.values, doubles(x), 2 * outputs, columns, tokens);
      std::vector<double> expected;
      for (std::uint32_t t = 0; t < tokens; ++t) {
        for (std::uint32_t i = 0; i < outputs; ++i) {
          const std::size_t row = std::size_t{t} * 2 * outputs;
          expected.push_back(reference::silu(both[row + i]) * both[row + outputs + i]);
        }
      }
      const OnDevice on_weights(weights, stream_.get());
      const Guarded<Bf16> on_x(x, stream_.get());
      for (const SkinnyConfig config : configs()) {
        const Guarded<Bf16> y(std::size_t{tokens} * outputs, stream_.get());
        SkinnyProduct p;
        p.x = on_x.data();
        p.y = y.data();
        p.rows = 2 * outputs;
        p.columns = columns;
        p.tokens = tokens;
        p.x_stride = columns;
        p.y_stride = outputs;
        must(skinny_fp8_swiglu(p, on_weights.get(), config, Start::ordered, stream_.get()));
        wait();
        const std::string what = name_of({2 * outputs, columns, tokens, kind}, config);
        expect_close(doubles(y.read(what)), expected, 1.1 * bf16_step, 2e-4, what);
      }
    }
  }
}

// What one token holds never reaches another, and the same work gives the same bits, also behind a product whose
// result it reads and which it need not wait for to fetch weights.
TEST_F(SkinnyFp8Test, TokensAreApartAndResultsRepeat) {
  constexpr std::uint32_t size = 1024, tokens = 12;
  Random random(5);
  const Matrix weights = random_matrix(random, Fp8Scales::block, size, size, 0.0005);
  Halves x = random_values(random, std::size_t{tokens} * size);
  const OnDevice on_weights(weights, stream_.get());
  const auto run = [&](const Halves& input, SkinnyConfig config, Start start) {
    const Guarded<Bf16> on_x(input, stream_.get()), between(std::size_t{tokens} * size, stream_.get());
    const Guarded<Bf16> y(std::size_t{tokens} * size, stream_.get());
    SkinnyProduct p;
    p.x = on_x.data();
    p.y = between.data();
    p.rows = p.columns = size;
    p.tokens = tokens;
    p.x_stride = p.y_stride = size;
    must(skinny_fp8(p, on_weights.get(), config, start, stream_.get()));
    p.x = between.data();
    p.y = y.data();
    must(skinny_fp8(p, on_weights.get(), config, start, stream_.get()));
    wait();
    return y.read();
  };
  for (const SkinnyConfig config : configs()) {
    const auto clean = run(x, config, Start::ordered);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(run(x, config, Start::overlapped), clean);
    Halves dirty = x;
    for (std::uint32_t i = 0; i < size; ++i) dirty[std::size_t{4} * size + i] = 0x7fc0;
    auto result = run(dirty, config, Start::ordered);
    for (std::uint32_t i = 0; i < size; ++i) {
      EXPECT_TRUE(std::isnan(value_of(result[std::size_t{4} * size + i])));
      result[std::size_t{4} * size + i] = clean[std::size_t{4} * size + i];
    }
    EXPECT_EQ(result, clean);
  }
}

// 150,000 rows of 16,384: the last row begins beyond 2^31 values.
TEST_F(SkinnyFp8Test, ReadsBeyondTwoToTheThirtyOneValues) {
  constexpr std::uint32_t rows = 150'000, columns = 16'384;
  constexpr std::size_t last = (std::size_t{rows} - 1) * columns;
  Random random(9);
  const Matrix row = random_matrix(random, Fp8Scales::tensor, 1, columns);
  const Halves x = random_values(random, columns);
  auto weights = must(DeviceBuffer::make(std::size_t{rows} * columns));
  must(weights.fill(0, stream_.get()));
  must(weights.upload(row.codes.data(), columns, stream_.get(), last));
  const Guarded<float> scale(row.scales, stream_.get());
  const Guarded<Bf16> on_x(x, stream_.get());
  const Guarded<float> y(rows, stream_.get());
  SkinnyProduct p;
  p.x = on_x.data();
  p.y = y.data();
  p.output = OutputType::f32;
  p.rows = rows;
  p.columns = columns;
  p.tokens = 1;
  p.x_stride = columns;
  p.y_stride = rows;
  must(skinny_fp8(p, {weights.as<std::uint8_t>(), scale.data(), Fp8Scales::tensor}, {0, 1}, Start::ordered,
                  stream_.get()));
  wait();
  const auto values = y.read();
  const double expected = reference::matmul(row.values, doubles(x), 1, columns, 1)[0];
  const double size = reference::matmul(absolute(row.values), absolute(doubles(x)), 1, columns, 1)[0];
  EXPECT_NEAR(values[rows - 1], expected, float_step * size);
  EXPECT_GT(std::abs(expected), 10 * float_step * size);
  for (std::uint32_t i = 0; i + 1 < rows; ++i) ASSERT_EQ(values[i], 0) << i;
}

TEST(SkinnyFp8, RefusesShapesByName) {
  alignas(16) Bf16 value[16] = {};
  alignas(16) std::uint8_t codes[16] = {};
  const float scale = 1;
  SkinnyProduct p;
  p.x = value;
  p.y = value;
  p.rows = 1;
  p.columns = p.x_stride = 16;
  p.y_stride = 1;
  p.tokens = 1;
  const auto message = [&](const SkinnyProduct& product, const Fp8Weights& weights, SkinnyConfig config) {
    const auto started = skinny_fp8(product, weights, config, Start::ordered, nullptr);
    return started ? std::string() : started.error().message;
  };
  const Fp8Weights good{codes, &scale, Fp8Scales::tensor};
  SkinnyProduct odd = p;
  odd.columns = 8;
  EXPECT_NE(message(odd, good, {}).find("multiple of 16"), std::string::npos);
  SkinnyProduct many = p;
  many.tokens = 17;
  EXPECT_NE(message(many, good, {}).find("tokens"), std::string::npos);
  EXPECT_NE(message(p, {codes, nullptr, Fp8Scales::row}, {}).find("scales"), std::string::npos);
  EXPECT_NE(message(p, {codes + 1, &scale, Fp8Scales::row}, {}).find("aligned"), std::string::npos);
  EXPECT_NE(message(p, {nullptr, &scale, Fp8Scales::row}, {}).find("weights"), std::string::npos);
  EXPECT_NE(message(p, good, {99, 1}).find("shape"), std::string::npos);
  EXPECT_NE(message(p, good, {0, 3}).find("cluster"), std::string::npos);
  SkinnyProduct swiglu = p;
  swiglu.rows = 3;
  const auto started = skinny_fp8_swiglu(swiglu, good, {}, Start::ordered, nullptr);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("SwiGLU"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
