// Products of e4m3 weights and tokens by cuBLASLt, held to what their codes and scales say.
#include "kernels/cuda/gemm.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Codes [rows][columns] with scales of rows, or of 128 columns and `block_rows` rows, and what they are worth.
struct Coded {
  Bytes codes;
  std::vector<float> scales;
  std::vector<double> values;
};

struct Layout {
  std::uint32_t rows, columns, block_rows = 1;
  std::uint64_t row_step, column_step;  // between scales
};

Coded random_codes(Random& random, const Layout& layout, std::size_t scales) {
  Coded coded{Bytes(std::size_t{layout.rows} * layout.columns), std::vector<float>(scales), {}};
  for (float& value : coded.scales) value = static_cast<float>(0.01 * std::exp2(4 * random.uniform() - 2));
  for (std::uint32_t row = 0; row < layout.rows; ++row) {
    for (std::uint32_t column = 0; column < layout.columns; ++column) {
      auto code = static_cast<std::uint8_t>(random.next() >> 32);
      if ((code & 0x7fu) == 0x7fu) code ^= 1u;
      coded.codes[std::size_t{row} * layout.columns + column] = code;
      const std::uint64_t place = row / layout.block_rows * layout.row_step + column / 128 * layout.column_step;
      coded.values.push_back(reference::e4m3(code) * double{coded.scales[place]});
    }
  }
  return coded;
}

struct Case {
  std::uint32_t rows, columns, tokens;
  Fp8Scales kind = Fp8Scales::row;
  bool with_bias = false, with_residual = false, in_place = false;
  Fp8Sums sums = Fp8Sums::fast;
};

std::string name_of(const Case& c) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.columns) + " x " + std::to_string(c.rows) +
         (c.kind == Fp8Scales::block ? " blocks"
          : c.sums == Fp8Sums::fast  ? " rows"
                                     : " rows, exact") +
         (c.with_bias ? ", bias" : "") + (c.with_residual ? ", residual" : "");
}

class GemmFp8Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) gemm_ = must(Gemm::make());
  }

  void check(const Case& c) {
    Random random(c.rows * 31 + c.columns * 7 + c.tokens);
    const bool has_blocks = c.kind == Fp8Scales::block;
    const std::uint64_t groups = c.columns / 128, stride = fp8_scale_stride(c.tokens), y_stride = c.rows + 8;
    const Layout of_weights{c.rows, c.columns, has_blocks ? 128u : 1u, has_blocks ? groups : 1, has_blocks ? 1u : 0u};
    const Layout of_x{c.tokens, c.columns, 1, 1, has_blocks ? stride : 0};
    const Coded weights = random_codes(random, of_weights, has_blocks ? (c.rows + 127) / 128 * groups : c.rows);
    const Coded x = random_codes(random, of_x, has_blocks ? groups * stride : c.tokens);
    const Halves bias = random_values(random, c.rows, 5), residual = random_values(random, c.tokens * y_stride, 5);
    const auto exact = reference::matmul(weights.values, x.values, c.rows, c.columns, c.tokens);
    const auto scale = reference::matmul(absolute(weights.values), absolute(x.values), c.rows, c.columns, c.tokens);

    const Guarded<std::uint8_t> on_weights(weights.codes, stream_.get()), on_x(x.codes, stream_.get());
    const Guarded<float> weight_scales(weights.scales, stream_.get()), x_scales(x.scales, stream_.get());
    const Guarded<Bf16> on_bias(bias, stream_.get()), on_residual(residual, stream_.get());
    const Guarded<Bf16> y(c.tokens * y_stride, stream_.get());
    GemmProduct p;
    p.fp8_weights = {on_weights.data(), weight_scales.data(), c.kind};
    p.fp8_x = {on_x.data(), x_scales.data(), c.kind};
    p.fp8_sums = c.sums;
    p.y = c.in_place ? on_residual.data() : y.data();
    p.rows = c.rows;
    p.columns = c.columns;
    p.tokens = c.tokens;
    p.y_stride = y_stride;
    p.bias = c.with_bias ? on_bias.data() : nullptr;
    p.residual = c.with_residual ? on_residual.data() : nullptr;
    ASSERT_TRUE(must(gemm_.offers(p))) << name_of(c);
    must(gemm_.run(p, stream_.get()));
    wait();
    const auto all = doubles(c.in_place ? on_residual.read(name_of(c)) : y.read(name_of(c)));
    std::vector<double> actual, expected, bounds;
    double worst = 0;
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t row = 0; row < y_stride; ++row) {
        const double given = all[t * y_stride + row], added = value_of(residual[t * y_stride + row]);
        if (row >= c.rows) {
          ASSERT_TRUE(c.in_place ? given == added : std::isnan(given)) << name_of(c) << ": written between rows";
          continue;
        }
        const std::size_t place = std::size_t{t} * c.rows + row;
        double value = exact[place];
        if (c.with_bias) value += value_of(bias[row]);
        if (c.with_residual) value += added;
        actual.push_back(given);
        expected.push_back(value);
        const double rounded_before = c.with_bias || c.with_residual ? std::abs(exact[place]) : 0;
        const double rounding = 1.01 * bf16_step * (std::abs(value) + rounded_before);
        bounds.push_back(rounding + sum_error(c) * scale[place]);
        worst = std::max(worst, (std::abs(given - value) - rounding) / scale[place]);
      }
    }
    std::printf("%s: off by up to %.1e of absolute sums\n", name_of(c).c_str(), worst);
    expect_near(actual, expected, bounds, name_of(c));
  }

  /// Of the sum of absolute products: matrix units cut what is small beside the largest, as is most here, where codes
  /// have all exponents.
  static double sum_error(const Case& c) {
    return c.kind == Fp8Scales::row && c.sums == Fp8Sums::fast ? 1.0 / 1024 : 1.0 / 2048;
  }

  Gemm gemm_;
};

TEST_F(GemmFp8Test, MatchesTheReferenceForOddSizes) {
  for (const Fp8Sums sums : {Fp8Sums::fast, Fp8Sums::exact}) {
    for (const std::uint32_t tokens : {1u, 17u, 33u, 64u, 129u, 300u}) {
      check({16, 16, tokens, Fp8Scales::row, false, false, false, sums});
      check({112, 1040, tokens, Fp8Scales::row, false, false, false, sums});
      check({272, 528, tokens, Fp8Scales::row, false, false, false, sums});
    }
    check({512, 4096, 40, Fp8Scales::row, false, false, false, sums});
    check({96, 14336, 65, Fp8Scales::row, false, false, false, sums});
  }
}

TEST_F(GemmFp8Test, MatchesTheReferenceForBlocks) {
  for (const std::uint32_t tokens : {4u, 24u, 64u, 132u, 300u}) {
    check({16, 512, tokens, Fp8Scales::block});
    check({272, 1024, tokens, Fp8Scales::block});
  }
  check({96, 14336, 68, Fp8Scales::block});
}

TEST_F(GemmFp8Test, AddsBiasAndResidual) {
  for (const Fp8Scales kind : {Fp8Scales::row, Fp8Scales::block}) {
    for (const std::uint32_t tokens : {20u, 64u, 200u}) {
      check({112, 1024, tokens, kind, true});
      check({112, 1024, tokens, kind, false, true});
      check({512, 4096, tokens, kind, false, true, true});
      check({112, 1024, tokens, kind, true, true});
    }
  }
}

// What one token holds never reaches another, and the same work gives the same bits.
TEST_F(GemmFp8Test, TokensAreApartAndResultsRepeat) {
  constexpr std::uint32_t rows = 256, columns = 4096, tokens = 50;
  Random random(5);
  const Coded weights = random_codes(random, {rows, columns, 1, 1, 0}, rows);
  Coded x = random_codes(random, {tokens, columns, 1, 1, 0}, tokens);
  const Guarded<std::uint8_t> on_weights(weights.codes, stream_.get());
  const Guarded<float> weight_scales(weights.scales, stream_.get()), x_scales(x.scales, stream_.get());
  const auto run = [&] {
    const Guarded<std::uint8_t> on_x(x.codes, stream_.get());
    const Guarded<Bf16> y(std::size_t{tokens} * rows, stream_.get());
    GemmProduct p;
    p.fp8_weights = {on_weights.data(), weight_scales.data(), Fp8Scales::row};
    p.fp8_x = {on_x.data(), x_scales.data(), Fp8Scales::row};
    p.y = y.data();
    p.rows = p.y_stride = rows;
    p.columns = columns;
    p.tokens = tokens;
    must(gemm_.run(p, stream_.get()));
    wait();
    return y.read();
  };
  const auto clean = run();
  EXPECT_EQ(run(), clean);
  x.codes[std::size_t{4} * columns + 77] = 0x7f;
  auto result = run();
  for (std::uint32_t i = 0; i < rows; ++i) {
    EXPECT_TRUE(std::isnan(value_of(result[std::size_t{4} * rows + i])));
    result[std::size_t{4} * rows + i] = clean[std::size_t{4} * rows + i];
  }
  EXPECT_EQ(result, clean);
}

TEST_F(GemmFp8Test, RefusesShapesByName) {
  alignas(16) std::uint8_t codes[16] = {};
  alignas(16) Bf16 y[16] = {};
  float scale = 1;
  GemmProduct p;
  p.y = y;
  p.y_stride = 16;
  const auto message = [&](std::uint32_t rows, std::uint32_t columns, Fp8Scales of_weights, Fp8Scales of_x,
                           std::uint32_t tokens = 4) {
    p.tokens = tokens;
    p.fp8_weights = {codes, &scale, of_weights};
    p.fp8_x = {codes, &scale, of_x};
    p.rows = rows;
    p.columns = columns;
    const auto started = gemm_.run(p, nullptr);
    return started ? std::string() : started.error().message;
  };
  constexpr auto row = Fp8Scales::row, block = Fp8Scales::block, tensor = Fp8Scales::tensor;
  EXPECT_NE(message(16, 24, row, row).find("columns"), std::string::npos);
  EXPECT_NE(message(16, 640, block, block).find("columns"), std::string::npos);
  EXPECT_NE(message(8, 16, row, row).find("rows"), std::string::npos);
  EXPECT_NE(message(16, 512, block, block, 6).find("tokens"), std::string::npos);
  EXPECT_NE(message(16, 512, block, row).find("one kind"), std::string::npos);
  EXPECT_NE(message(16, 16, tensor, row).find("one scale"), std::string::npos);
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
