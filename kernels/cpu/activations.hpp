// Inputs of matrix products: up to rows() rows of columns() values as floats, as 16-bit integers, or both.
// int16 form: each 32 columns share a float scale; value = q * scale, |q| <= 32767, so that a value keeps 15 bits
// relative to the largest of its 32 neighbours. Integer dot products of a block are exact, hence independent of order.
// Owner: the executor; kernels write disjoint rows or column blocks from their slices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/aligned_buffer.hpp"

namespace penstock::kernels::cpu {

/// What a matrix wants its input in.
enum class ActivationForm : std::uint8_t {
  f32,    // dense weights
  int16,  // quantised weights: 16-bit integers with a float scale for each 32 columns
  both,
};

class Activations {
 public:
  static constexpr std::size_t block = 32;

  Activations() = default;
  /// Throws std::bad_alloc. Memory: rows * columns * (4 for f32, 2.4 for int16) bytes.
  Activations(std::size_t rows, std::size_t columns, ActivationForm form);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  std::size_t blocks() const { return blocks_; }  // in a row
  ActivationForm form() const { return form_; }
  bool has_f32() const { return form_ != ActivationForm::int16; }
  bool has_int16() const { return form_ != ActivationForm::f32; }

  /// f32 form of a row [columns()]; rows are f32_stride() floats apart. Null without has_f32().
  float* f32(std::size_t row) { return f32_at(row); }
  const float* f32(std::size_t row) const { return f32_at(row); }
  std::size_t f32_stride() const { return blocks_ * block; }

  /// int16 form of a row: q [blocks() * 32], scale [blocks()], sum [blocks()] (sum of the 32 integers), scaled_sum
  /// [blocks()] (scale * sum). Columns beyond columns() are zero. Rows are blocks() * 32 (q) or blocks() (others)
  /// apart.
  std::int16_t* q(std::size_t row) { return reinterpret_cast<std::int16_t*>(int16_.data()) + row * blocks_ * block; }
  const std::int16_t* q(std::size_t row) const { return const_cast<Activations*>(this)->q(row); }
  float* scale(std::size_t row) { return meta() + row * blocks_; }
  const float* scale(std::size_t row) const { return const_cast<Activations*>(this)->scale(row); }
  float* scaled_sum(std::size_t row) { return meta() + (rows_ + row) * blocks_; }
  const float* scaled_sum(std::size_t row) const { return const_cast<Activations*>(this)->scaled_sum(row); }
  std::int32_t* sum(std::size_t row) { return reinterpret_cast<std::int32_t*>(meta()) + (2 * rows_ + row) * blocks_; }
  const std::int32_t* sum(std::size_t row) const { return const_cast<Activations*>(this)->sum(row); }

 private:
  float* f32_at(std::size_t row) const {
    if (!has_f32()) return nullptr;
    return const_cast<float*>(reinterpret_cast<const float*>(f32_.data())) + row * f32_stride();
  }
  float* meta() { return reinterpret_cast<float*>(meta_.data()); }

  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::size_t blocks_ = 0;
  ActivationForm form_ = ActivationForm::f32;
  AlignedBuffer f32_;
  AlignedBuffer int16_;
  AlignedBuffer meta_;
};

}  // namespace penstock::kernels::cpu
