#include "kernels/cuda/quantise.hpp"

#include <limits>

#include "kernels/cuda/elementwise.hpp"
#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

/// Codes and scales where the kernels write them, between guards.
class Codes {
 public:
  Codes(std::uint32_t tokens, std::uint32_t columns, Fp8Scales kind, Stream stream)
      : tokens_(tokens),
        columns_(columns),
        kind_(kind),
        codes_(std::size_t{tokens} * columns, stream),
        scales_(fp8_scale_count(tokens, columns, kind), stream) {}
  Fp8Tokens get() const { return {codes_.data(), scales_.data(), kind_}; }

  /// Each code is the nearest to its value at a scale of largest / 448, but for the last bits of floats.
  void expect(const std::vector<double>& values, const std::string& what) const {
    const auto codes = codes_.read(what);
    const auto scales = scales_.read(what);
    const std::uint32_t group = kind_ == Fp8Scales::block ? 128 : columns_;
    std::vector<double> actual, bounds;
    for (std::uint32_t token = 0; token < tokens_; ++token) {
      for (std::uint32_t first = 0; first < columns_; first += group) {
        const std::size_t place = std::size_t{token} * columns_ + first;
        double largest = 0;
        for (std::uint32_t i = 0; i < group; ++i) largest = std::max(largest, std::abs(values[place + i]));
        const double scale = scales[first / group * fp8_scale_stride(tokens_) + token];
        ASSERT_NEAR(scale, largest / 448, 1e-5 * largest / 448) << what << ": token " << token;
        for (std::uint32_t i = 0; i < group; ++i) {
          const double value = values[place + i], code = std::abs(value) / scale;
          actual.push_back(reference::e4m3(codes[place + i]) * scale);
          // Half a unit in the last of three bits, not below that of the smallest numbers.
          const double unit = std::exp2(std::max(std::floor(std::log2(code)), -6.0) - 3);
          bounds.push_back((0.501 * unit + 1e-4 * code) * scale);
        }
      }
    }
    expect_near(actual, values, bounds, what);
  }
  std::vector<std::uint8_t> codes() const { return codes_.read(); }

 private:
  std::uint32_t tokens_, columns_;
  Fp8Scales kind_;
  Guarded<std::uint8_t> codes_;
  Guarded<float> scales_;
};

class QuantiseTest : public GpuTest {
 protected:
  void check(std::uint32_t tokens, std::uint32_t columns, Fp8Scales kind) {
    const std::string what =
        std::to_string(tokens) + " x " + std::to_string(columns) + (kind == Fp8Scales::block ? " blocks" : " rows");
    Random random(tokens * 31 + columns);
    const std::size_t count = std::size_t{tokens} * columns;
    Halves x = random_values(random, 2 * count), weight = random_values(random, columns);
    for (std::size_t i = 0; i < x.size(); i += 97) x[i] = rounded(value_of(x[i]) * 1e-4);
    const Guarded<Bf16> on_x(x, stream_.get()), on_weight(weight, stream_.get());
    const Start start = Start::overlapped;

    const Codes plain(tokens, columns, kind, stream_.get()), gated(tokens, columns, kind, stream_.get()),
        normed(tokens, columns, kind, stream_.get());
    must(quantise_rows({on_x.data(), plain.get(), tokens, columns}, start, stream_.get()));
    must(quantise_swiglu({on_x.data(), gated.get(), tokens, columns}, start, stream_.get()));
    const RmsNorm norm{on_x.data(), nullptr, on_weight.data(), nullptr, tokens, columns, 1e-5f};
    must(quantise_norm(norm, normed.get(), start, stream_.get()));
    wait();
    auto values = doubles(x);
    values.resize(count);
    plain.expect(values, what);
    std::vector<double> of_norm, of_gate;
    for (std::uint32_t token = 0; token < tokens; ++token) {
      double squares = 0;
      for (std::uint32_t i = 0; i < columns; ++i) squares += std::pow(values[std::size_t{token} * columns + i], 2);
      for (std::uint32_t i = 0; i < columns; ++i) {
        const std::size_t place = std::size_t{token} * columns + i, gate = place + std::size_t{token} * columns;
        of_norm.push_back(values[place] / std::sqrt(squares / columns + 1e-5) * value_of(weight[i]));
        const double g = value_of(x[gate]);
        of_gate.push_back(g / (1 + std::exp(-g)) * value_of(x[gate + columns]));
      }
    }
    normed.expect(of_norm, what + " norm");
    gated.expect(of_gate, what + " swiglu");
  }
};

TEST_F(QuantiseTest, CodesAreTheNearestForOddSizes) {
  for (const std::uint32_t tokens : {1u, 3u, 17u, 130u}) {
    for (const std::uint32_t columns : {16u, 48u, 272u, 2064u, 4096u}) check(tokens, columns, Fp8Scales::row);
    for (const std::uint32_t columns : {128u, 384u, 4096u}) check(tokens, columns, Fp8Scales::block);
  }
  for (const std::uint32_t columns : {14336u, 32768u}) {
    check(2, columns, Fp8Scales::row);
    check(2, columns, Fp8Scales::block);
  }
}

TEST_F(QuantiseTest, NothingIsLostOfZerosAndOneTokensNanStaysThere) {
  constexpr std::uint32_t tokens = 3, columns = 256;
  Halves x(tokens * columns, 0);
  for (std::uint32_t i = 0; i < columns; ++i) x[columns + i] = 0x7f80;  // infinity
  x[2 * columns + 5] = 0x7fc0;                                          // NaN
  x[2 * columns + 200] = 0x3f80;                                        // 1
  const Guarded<Bf16> on_x(x, stream_.get());
  for (const Fp8Scales kind : {Fp8Scales::row, Fp8Scales::block}) {
    const Codes codes(tokens, columns, kind, stream_.get());
    must(quantise_rows({on_x.data(), codes.get(), tokens, columns}, Start::ordered, stream_.get()));
    wait();
    const auto values = codes.codes();
    for (std::uint32_t i = 0; i < columns; ++i) {
      EXPECT_EQ(values[i], 0);
      EXPECT_EQ(values[columns + i] & 0x7f, 0x7f);
      EXPECT_EQ(values[2 * columns + i] & 0x7f, i == 5 ? 0x7f : i == 200 ? 0x7e : 0);
    }
  }
}

TEST(Quantise, RefusesShapesByName) {
  Bf16 value{};
  std::uint8_t code{};
  float scale{};
  const auto message = [&](std::uint32_t columns, Fp8Scales kind, const Bf16* x) {
    const auto done = quantise_rows({x, {&code, &scale, kind}, 0, columns}, Start::ordered, nullptr);
    return done ? std::string() : done.error().message;
  };
  EXPECT_EQ(message(16, Fp8Scales::row, &value), "");
  EXPECT_NE(message(24, Fp8Scales::row, &value).find("columns"), std::string::npos);
  EXPECT_NE(message(192, Fp8Scales::block, &value).find("columns"), std::string::npos);
  EXPECT_NE(message(32784, Fp8Scales::row, &value).find("columns"), std::string::npos);
  EXPECT_NE(message(128, Fp8Scales::tensor, &value).find("scale"), std::string::npos);
  EXPECT_NE(message(128, Fp8Scales::row, nullptr).find("x, codes"), std::string::npos);
  RmsNorm norm;
  norm.residual = &value;
  norm.columns = 128;
  EXPECT_FALSE(quantise_norm(norm, {&code, &scale, Fp8Scales::row}, Start::ordered, nullptr));
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
