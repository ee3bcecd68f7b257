#include "kernels/cuda/norm.hpp"

#include "kernels/reference/reference.hpp"
#include "tests/kernel/support.hpp"

namespace penstock::kernels::cuda::test {
namespace {

class RmsNormTest : public GpuTest {
 protected:
  void check(std::uint32_t tokens, std::uint32_t columns, bool with_x) {
    const std::string what = std::to_string(tokens) + " x " + std::to_string(columns) + (with_x ? " added" : "");
    Random random(columns + tokens);
    const std::size_t count = std::size_t{tokens} * columns;
    const Halves residual = random_values(random, count, 3), x = random_values(random, count, 3);
    const Halves weight = random_values(random, columns);
    const Guarded<Bf16> on_residual(residual, stream_.get()), on_x(x, stream_.get()), on_weight(weight, stream_.get());
    const Guarded<Bf16> y(count, stream_.get());
    RmsNorm norm;
    norm.residual = on_residual.data();
    norm.x = with_x ? on_x.data() : nullptr;
    norm.weight = on_weight.data();
    norm.y = y.data();
    norm.tokens = tokens;
    norm.columns = columns;
    must(rms_norm(norm, Start::ordered, stream_.get()));
    wait();
    Halves sums = residual;
    if (with_x) {
      for (std::size_t i = 0; i < count; ++i) sums[i] = rounded(value_of(residual[i]) + value_of(x[i]));
    }
    EXPECT_EQ(on_residual.read(what), sums) << what;
    std::vector<double> expected;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const auto row = reference::rms_norm(doubles({sums.data() + std::size_t{t} * columns, columns}), doubles(weight),
                                           norm.epsilon);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    expect_close(doubles(y.read(what)), expected, 1.01 * bf16_step, 1e-30, what);
  }
};

TEST_F(RmsNormTest, MatchesTheReferenceForAllSizes) {
  for (const std::uint32_t columns : {8u, 64u, 264u, 2880u, 4096u, 8192u, 8200u, 32768u}) {
    for (const std::uint32_t tokens : {1u, 3u, 17u}) {
      check(tokens, columns, false);
      check(tokens, columns, true);
    }
  }
}

TEST_F(RmsNormTest, ZerosStayZeros) {
  const Guarded<Bf16> zeros(Halves(64), stream_.get()), y(64, stream_.get());
  const Guarded<Bf16> weight(Halves(64, rounded(1)), stream_.get());
  RmsNorm norm;
  norm.residual = zeros.data();
  norm.weight = weight.data();
  norm.y = y.data();
  norm.tokens = 1;
  norm.columns = 64;
  must(rms_norm(norm, Start::ordered, stream_.get()));
  wait();
  EXPECT_EQ(y.read(), Halves(64));
}

TEST(RmsNorm, RefusesShapesByName) {
  RmsNorm norm;
  for (const std::uint32_t columns : {0u, 12u, 32776u}) {
    norm.columns = columns;
    const auto started = rms_norm(norm, Start::ordered, nullptr);
    ASSERT_FALSE(started);
    EXPECT_NE(started.error().message.find("rms_norm: columns"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::kernels::cuda::test
