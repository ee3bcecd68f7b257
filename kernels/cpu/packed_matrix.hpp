// A weight matrix repacked once at load so that kernels stream it front to back: tiles of 16 output rows, inside a tile
// column after column, one vector lane a row. The packing is the same for every IsaLevel. Immutable after pack(); any
// thread may read it. Memory: packed_bytes(), about the size in the file (rows are padded to a multiple of 16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/result.hpp"
#include "kernels/cpu/activations.hpp"
#include "kernels/cpu/aligned_buffer.hpp"
#include "kernels/cpu/slice.hpp"
#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::cpu {

/// Rows of a matrix as stored in a file: `rows` (outputs) times `columns` (inputs), row-major, in `format`.
/// The ranges choose the part to pack (tensor parallelism); an empty range means all. Column ranges start and end on
/// block boundaries of the format.
struct MatrixSource {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;  // checked against the shape
  WeightFormat format = WeightFormat::f32;
  std::size_t rows = 0;
  std::size_t columns = 0;
  IndexRange row_range = {};
  IndexRange column_range = {};
};

class PackedMatrix {
 public:
  static constexpr std::size_t tile_rows = 16;

  PackedMatrix() = default;

  /// Packs one matrix.
  static Result<PackedMatrix> pack(const MatrixSource& source);

  /// Packs several matrices of one format and column count one below the other (q, k and v as one matrix).
  static Result<PackedMatrix> pack_stacked(std::span<const MatrixSource> sources);

  /// Packs gate and up (same shape and format) interleaved in groups of eight rows for Kernels::matmul_swiglu.
  static Result<PackedMatrix> pack_gate_up(const MatrixSource& gate, const MatrixSource& up);

  WeightFormat format() const { return format_; }
  std::size_t rows() const { return rows_; }  // gate and up counted both
  std::size_t columns() const { return columns_; }
  bool is_gate_up() const { return gate_up_; }
  std::size_t tiles() const { return (rows_ + tile_rows - 1) / tile_rows; }
  std::size_t tile_bytes() const { return tile_bytes_; }
  std::size_t packed_bytes() const { return data_.size(); }
  ActivationForm activation_form() const;

  const std::byte* tile(std::size_t index) const { return data_.data() + index * tile_bytes_; }

  /// Writes row `row` as floats: out[columns()]. The values are exactly those of the file's format (embedding lookup).
  /// For a gate/up matrix `row` counts packed rows.
  void dequantize_row(std::size_t row, float* out) const;

 private:
  WeightFormat format_ = WeightFormat::f32;
  bool gate_up_ = false;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::size_t tile_bytes_ = 0;
  AlignedBuffer data_;
};

}  // namespace penstock::kernels::cpu
