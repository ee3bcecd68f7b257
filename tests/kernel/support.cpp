#include "tests/kernel/support.hpp"

#include <bit>

namespace penstock::kernels::cuda::test {

double value_of(Bf16 bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

Bf16 rounded(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

Halves random_values(Random& random, std::size_t count, double scale) {
  Halves values(count);
  for (Bf16& value : values) {
    const double sum = random.uniform() + random.uniform() + random.uniform() - 1.5;
    value = rounded(2 * scale * sum);
  }
  return values;
}

std::vector<double> doubles(std::span<const Bf16> values) {
  std::vector<double> out;
  out.reserve(values.size());
  for (const Bf16 value : values) out.push_back(value_of(value));
  return out;
}

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

std::vector<double> without_gaps(std::span<const double> values, std::size_t count, std::size_t stride,
                                 const std::string& what) {
  std::vector<double> dense;
  bool is_clean = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % stride < count) {
      dense.push_back(values[i]);
    } else {
      is_clean = is_clean && std::isnan(values[i]);
    }
  }
  EXPECT_TRUE(is_clean) << what << ": written between rows";
  return dense;
}

void GpuTest::SetUp() {
  const auto info = device_info();
  if (!info) GTEST_SKIP() << info.error().message;
  stream_ = must(OwnedStream::make());
}

void GpuTest::wait() {
  must(stream_.wait());
}

void expect_near(std::span<const double> actual, std::span<const double> expected, std::span<const double> bounds,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    ASSERT_TRUE(difference <= bounds[i]) << what << ": value " << i << " is " << actual[i] << ", expected "
                                         << expected[i] << " +- " << bounds[i];
  }
}

void expect_close(std::span<const double> actual, std::span<const double> expected, double relative, double absolute,
                  const std::string& what) {
  std::vector<double> bounds;
  for (const double value : expected) bounds.push_back(std::abs(value) * relative + absolute);
  expect_near(actual, expected, bounds, what);
}

}  // namespace penstock::kernels::cuda::test
