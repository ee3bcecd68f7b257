// Inputs and outputs of kernel tests: random matrices in every format, and output memory that shows what was written.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "common/time/random.hpp"
#include "kernels/cpu/half.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/reference/dequantize.hpp"

namespace penstock::kernels::test {

using cpu::WeightFormat;

inline constexpr WeightFormat all_formats[] = {WeightFormat::f32,  WeightFormat::f16,  WeightFormat::bf16,
                                               WeightFormat::q8_0, WeightFormat::q4_0, WeightFormat::q4_1,
                                               WeightFormat::q4_k, WeightFormat::q6_k};

/// Base of the tests that every level must pass. Levels that this processor does not run are skipped by name.
template <class Param>
class LevelTest : public testing::TestWithParam<Param> {
 protected:
  explicit LevelTest(cpu::IsaLevel level)
      : level_(level), kernels_(cpu::is_supported(level) ? level : cpu::IsaLevel::portable) {}
  void SetUp() override {
    if (kernels_.level() != level_) GTEST_SKIP() << "this processor does not run level " << to_string(level_);
  }

  cpu::IsaLevel level_;
  cpu::Kernels kernels_;
};

/// About normal: mean 0, deviation 1.
inline float normal(Random& random) {
  double total = -6;
  for (int i = 0; i < 12; ++i) total += random.uniform();
  return static_cast<float>(total);
}

inline std::vector<float> normals(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// A matrix as a file would hold it, with its exact values.
struct TestMatrix {
  WeightFormat format = WeightFormat::f32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::byte> bytes;
  std::vector<double> values;

  cpu::MatrixSource source() const { return {bytes.data(), bytes.size(), format, rows, columns, {}, {}}; }
};

inline void put_half(std::byte* at, float value) {
  const std::uint16_t bits = cpu::f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

/// Any bit pattern is a valid code; scales are drawn so that weights are of the order of 0.1.
inline void fill_block(WeightFormat format, Random& random, std::byte* block) {
  for (std::size_t i = 0; i < cpu::block_bytes(format); ++i) block[i] = std::byte(random.next() & 255);
  const float size = 0.5f + static_cast<float>(random.uniform());
  const float value = 0.1f * normal(random);
  const std::uint16_t brain = cpu::f32_to_bf16(value);
  switch (format) {
    case WeightFormat::f32:
      std::memcpy(block, &value, sizeof value);
      return;
    case WeightFormat::f16:
      put_half(block, value);
      return;
    case WeightFormat::bf16:
      std::memcpy(block, &brain, sizeof brain);
      return;
    case WeightFormat::q8_0:
      put_half(block, size * 0.0015f);
      return;
    case WeightFormat::q4_0:
      put_half(block, size * 0.02f);
      return;
    case WeightFormat::q4_1:
      put_half(block, size * 0.02f), put_half(block + 2, size * -0.15f);
      return;
    case WeightFormat::q4_k:
      put_half(block, size * 0.0007f), put_half(block + 2, size * 0.005f);
      return;
    case WeightFormat::q6_k:
      put_half(block + 208, size * 0.0001f);
      return;
  }
}

inline TestMatrix random_matrix(WeightFormat format, std::size_t rows, std::size_t columns, std::uint64_t seed) {
  Random random(seed);
  TestMatrix matrix{format, rows, columns, {}, {}};
  const std::size_t bytes_a_row = cpu::row_bytes(format, columns);
  matrix.bytes.resize(rows * bytes_a_row);
  for (std::size_t at = 0; at < matrix.bytes.size(); at += cpu::block_bytes(format)) {
    fill_block(format, random, matrix.bytes.data() + at);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const auto values = reference::dequantize_row(format, matrix.bytes.data() + row * bytes_a_row, columns);
    matrix.values.insert(matrix.values.end(), values.begin(), values.end());
  }
  return matrix;
}

/// m rows in both forms, quantised by the kernels under test. One column in 50 is 100 times larger, as in real models.
inline cpu::Activations random_activations(const cpu::Kernels& kernels, std::size_t m, std::size_t columns,
                                           std::uint64_t seed) {
  Random random(seed);
  cpu::Activations x(m, columns, cpu::ActivationForm::both);
  for (std::size_t row = 0; row < m; ++row) {
    for (std::size_t c = 0; c < columns; ++c) x.f32(row)[c] = normal(random) * (c % 50 == 7 ? 100.0f : 1.0f);
  }
  kernels.quantize(x, m, {});
  return x;
}

/// The values that a product with a matrix of this format reads: what quantisation loses is tested on its own.
inline std::vector<double> values_read(const cpu::Activations& x, WeightFormat format) {
  std::vector<double> values;
  for (std::size_t row = 0; row < x.rows(); ++row) {
    for (std::size_t c = 0; c < x.columns(); ++c) {
      values.push_back(cpu::block_columns(format) == 1 ? double{x.f32(row)[c]}
                                                       : double{x.scale(row)[c / 32]} * x.q(row)[c]);
    }
  }
  return values;
}

/// Output memory full of NaN with guards on both sides.
class Canvas {
 public:
  explicit Canvas(std::size_t count) : count_(count), memory_(count + 2 * guard, std::nanf("")) {
    for (std::size_t i = 0; i < guard; ++i) memory_[i] = memory_[guard + count + i] = mark;
  }
  float* data() { return memory_.data() + guard; }
  std::span<const float> view() const { return {memory_.data() + guard, count_}; }
  bool guards_hold() const {
    for (std::size_t i = 0; i < guard; ++i) {
      if (memory_[i] != mark || memory_[guard + count_ + i] != mark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr float mark = -12345.5f;
  std::size_t count_;
  std::vector<float> memory_;
};

/// Root of the summed squared differences over that of the squared expected values; NaN if any value is.
inline double relative_error(std::span<const float> actual, std::span<const double> expected) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace penstock::kernels::test
