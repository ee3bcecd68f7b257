// What tests of GPU kernels share: bf16 values, device memory with guards that shows what was written, and comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/time/random.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda::test {

using Halves = std::vector<Bf16>;

double value_of(Bf16 bits);
Bf16 rounded(double value);
/// About normal times `scale`, rounded.
Halves random_values(Random& random, std::size_t count, double scale = 1);
std::vector<double> doubles(std::span<const Bf16> values);
std::vector<double> absolute(std::vector<double> values);
/// The first `count` of every `stride` values; fails unless the others are NaN, as nothing wrote them.
std::vector<double> without_gaps(std::span<const double> values, std::size_t count, std::size_t stride,
                                 const std::string& what);

/// Every test's stream. Skips the test where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
  void wait();
  OwnedStream stream_;
};

/// Fails the test on an error; for what a test needs to go on.
template <class T>
T must(Result<T> result) {
  if (!result) ADD_FAILURE() << result.error().message;
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  if (!result) ADD_FAILURE() << result.error().message;
}

/// Device memory of `count` values between two guards. All of it starts as 0xff bytes, which are NaN as bf16 and float.
template <class T>
class Guarded {
 public:
  Guarded(std::size_t count, Stream stream)
      : count_(count), stream_(stream), buffer_(must(DeviceBuffer::make(count * sizeof(T) + 2 * guard_bytes))) {
    must(buffer_.fill(0xff, stream));
  }
  Guarded(std::span<const T> values, Stream stream) : Guarded(values.size(), stream) {
    must(buffer_.upload(values.data(), values.size_bytes(), stream, guard_bytes));
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.as<std::byte>() + guard_bytes); }
  /// The values; checks that the guards are as they were.
  std::vector<T> read(const std::string& what = "") const {
    std::vector<std::byte> all(buffer_.bytes());
    must(buffer_.download(all.data(), all.size(), stream_));
    const std::size_t end = guard_bytes + count_ * sizeof(T);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == guard_bytes) i = end;
      if (i < all.size() && all[i] != std::byte{0xff}) {
        ADD_FAILURE() << what << ": byte " << i << " outside was written";
        break;
      }
    }
    std::vector<T> values(count_);
    std::copy_n(all.data() + guard_bytes, count_ * sizeof(T), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  static constexpr std::size_t guard_bytes = 4096;
  std::size_t count_;
  Stream stream_;
  DeviceBuffer buffer_;
};

/// |actual - expected| <= bound, and not NaN; stops at the first that is not.
void expect_near(std::span<const double> actual, std::span<const double> expected, std::span<const double> bounds,
                 const std::string& what);
/// Bounds relative to each expected value, plus `absolute`.
void expect_close(std::span<const double> actual, std::span<const double> expected, double relative, double absolute,
                  const std::string& what);

constexpr double bf16_step = 1.0 / 256;  // half a unit in the last place, relative to the value

}  // namespace penstock::kernels::cuda::test
