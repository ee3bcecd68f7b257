#include "kernels/cpu/packed_matrix.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "kernels/cpu/block_codec.hpp"
#include "kernels/cpu/half.hpp"
#include "kernels/cpu/tile_layout.hpp"

namespace penstock::kernels::cpu {
namespace {

using detail::block;
using detail::RecordLayout;

/// A source whose ranges are filled in and checked.
struct CheckedSource {
  MatrixSource source;
  std::size_t row_bytes = 0;

  std::size_t rows() const { return source.row_range.end - source.row_range.begin; }
  std::size_t columns() const { return source.column_range.end - source.column_range.begin; }
  /// First wanted column of wanted row `index`.
  const std::byte* row(std::size_t index) const {
    return source.data + (source.row_range.begin + index) * row_bytes +
           penstock::kernels::cpu::row_bytes(source.format, source.column_range.begin);
  }
};

Result<CheckedSource> check(MatrixSource source) {
  auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::invalid_argument, "cannot pack a " + std::string(to_string(source.format)) +
                                                       " matrix of " + std::to_string(source.rows) + " x " +
                                                       std::to_string(source.columns) + ": " + why);
  };
  const std::size_t unit = block_columns(source.format);
  if (source.rows == 0 || source.columns == 0) return refuse("it is empty");
  if (source.columns % unit != 0) return refuse("its columns are not a multiple of " + std::to_string(unit));
  const std::size_t bytes_a_row = row_bytes(source.format, source.columns);
  if (source.bytes / bytes_a_row != source.rows || source.bytes % bytes_a_row != 0) {
    return refuse("it has " + std::to_string(source.bytes) + " bytes");
  }
  if (source.row_range.end == 0) source.row_range = {0, source.rows};
  if (source.column_range.end == 0) source.column_range = {0, source.columns};
  const IndexRange& rows = source.row_range;
  const IndexRange& columns = source.column_range;
  if (rows.begin >= rows.end || rows.end > source.rows) return refuse("the row range is outside");
  if (columns.begin >= columns.end || columns.end > source.columns) return refuse("the column range is outside");
  if (columns.begin % unit != 0 || columns.end % unit != 0) {
    return refuse("the column range cuts a block of " + std::to_string(unit));
  }
  return CheckedSource{source, bytes_a_row};
}

std::size_t tile_bytes_for(WeightFormat format, std::size_t columns) {
  if (detail::is_quantised(format)) return columns / block * detail::record_layout(format).bytes();
  return columns * detail::tile_rows * block_bytes(format);
}

void pack_dense_row(WeightFormat format, const std::byte* row, std::size_t columns, std::size_t lane, std::byte* tile) {
  const std::size_t element = block_bytes(format);
  for (std::size_t column = 0; column < columns; ++column) {
    std::memcpy(tile + (column * detail::tile_rows + lane) * element, row + column * element, element);
  }
}

void store_scale(const RecordLayout& layout, std::byte* at, std::size_t lane, float value, std::uint16_t half) {
  if (layout.float_scales) {
    std::memcpy(at + lane * sizeof value, &value, sizeof value);
  } else {
    std::memcpy(at + lane * sizeof half, &half, sizeof half);
  }
}

void pack_quantised_row(WeightFormat format, const std::byte* row, std::size_t columns, std::size_t lane,
                        std::byte* tile) {
  const RecordLayout layout = detail::record_layout(format);
  for (std::size_t index = 0; index < columns / block; ++index) {
    const detail::DecodedBlock decoded = detail::decode_block(format, row, index);
    std::byte* record = tile + index * layout.bytes();
    for (std::size_t s = 0; s < layout.scales_per_block; ++s) {
      store_scale(layout, record + s * detail::tile_rows * layout.scale_bytes(), lane, decoded.scales[s],
                  decoded.stored_halves[0]);
    }
    if (layout.has_min) store_scale(layout, record + layout.min_at(), lane, decoded.min, decoded.stored_halves[1]);
    const std::size_t word_columns = 32 / layout.code_bits;
    for (std::size_t column = 0; column < block; column += word_columns) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < word_columns; ++i) {
        const auto code = static_cast<std::uint8_t>(decoded.codes[column + i] + layout.code_offset);
        word |= std::uint32_t{code} << detail::code_bit(layout.code_bits, i);
      }
      const std::size_t at = (column / word_columns * detail::tile_rows + lane) * sizeof word;
      std::memcpy(record + layout.codes_at() + at, &word, sizeof word);
    }
  }
}

void pack_row(WeightFormat format, const std::byte* row, std::size_t columns, std::size_t packed_row,
              std::size_t tile_bytes, std::byte* data) {
  std::byte* tile = data + packed_row / detail::tile_rows * tile_bytes;
  const std::size_t lane = packed_row % detail::tile_rows;
  if (detail::is_quantised(format)) {
    pack_quantised_row(format, row, columns, lane, tile);
  } else {
    pack_dense_row(format, row, columns, lane, tile);
  }
}

float load_scale(const RecordLayout& layout, const std::byte* at, std::size_t lane) {
  if (layout.float_scales) {
    float value;
    std::memcpy(&value, at + lane * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at + lane * sizeof half, sizeof half);
  return f16_to_f32(half);
}

void dequantize_records(const RecordLayout& layout, const std::byte* tile, std::size_t columns, std::size_t lane,
                        float* out) {
  const std::size_t columns_a_scale = block / layout.scales_per_block;
  for (std::size_t column = 0; column < columns; ++column) {
    const std::byte* record = tile + column / block * layout.bytes();
    const std::size_t inside = column % block;
    const detail::CodePlace place = detail::code_place(layout.code_bits, lane, inside);
    unsigned code = std::to_integer<unsigned>(record[layout.codes_at() + place.byte]) >> place.shift;
    if (layout.code_bits == 4) code &= 15u;
    const std::int32_t value =
        layout.signed_codes ? static_cast<std::int8_t>(code) : static_cast<std::int32_t>(code) - layout.code_offset;
    const std::size_t scale_at = inside / columns_a_scale * detail::tile_rows * layout.scale_bytes();
    out[column] = load_scale(layout, record + scale_at, lane) * static_cast<float>(value);
    if (layout.has_min) out[column] += load_scale(layout, record + layout.min_at(), lane);
  }
}

float load_dense(WeightFormat format, const std::byte* at) {
  if (format == WeightFormat::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return format == WeightFormat::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(const MatrixSource& source) {
  return pack_stacked({&source, 1});
}

Result<PackedMatrix> PackedMatrix::pack_stacked(std::span<const MatrixSource> sources) {
  PENSTOCK_CHECK(!sources.empty(), "no matrices to stack");
  std::vector<CheckedSource> checked;
  PackedMatrix matrix;
  for (const MatrixSource& source : sources) {
    PENSTOCK_TRY(CheckedSource next, check(source));
    if (!checked.empty() && (source.format != matrix.format_ || next.columns() != matrix.columns_)) {
      return make_error(ErrorCode::invalid_argument, "matrices that are stacked must share format and columns");
    }
    matrix.format_ = source.format;
    matrix.columns_ = next.columns();
    matrix.rows_ += next.rows();
    checked.push_back(next);
  }
  matrix.tile_bytes_ = tile_bytes_for(matrix.format_, matrix.columns_);
  matrix.data_ = AlignedBuffer(matrix.tiles() * matrix.tile_bytes_);
  std::size_t packed_row = 0;
  for (const CheckedSource& source : checked) {
    for (std::size_t row = 0; row < source.rows(); ++row) {
      pack_row(matrix.format_, source.row(row), matrix.columns_, packed_row++, matrix.tile_bytes_, matrix.data_.data());
    }
  }
  return matrix;
}

Result<PackedMatrix> PackedMatrix::pack_gate_up(const MatrixSource& gate, const MatrixSource& up) {
  PENSTOCK_TRY(const CheckedSource gates, check(gate));
  PENSTOCK_TRY(const CheckedSource ups, check(up));
  if (gate.format != up.format || gates.rows() != ups.rows() || gates.columns() != ups.columns()) {
    return make_error(ErrorCode::invalid_argument, "gate and up must share format and shape");
  }
  if (gates.rows() % 8 != 0) {
    return make_error(ErrorCode::unsupported,
                      "gate and up need a multiple of 8 rows, not " + std::to_string(gates.rows()));
  }
  PackedMatrix matrix;
  matrix.format_ = gate.format;
  matrix.gate_up_ = true;
  matrix.rows_ = 2 * gates.rows();
  matrix.columns_ = gates.columns();
  matrix.tile_bytes_ = tile_bytes_for(matrix.format_, matrix.columns_);
  matrix.data_ = AlignedBuffer(matrix.tiles() * matrix.tile_bytes_);
  for (std::size_t row = 0; row < gates.rows(); ++row) {
    const std::size_t packed_row = row / 8 * 16 + row % 8;
    pack_row(matrix.format_, gates.row(row), matrix.columns_, packed_row, matrix.tile_bytes_, matrix.data_.data());
    pack_row(matrix.format_, ups.row(row), matrix.columns_, packed_row + 8, matrix.tile_bytes_, matrix.data_.data());
  }
  return matrix;
}

ActivationForm PackedMatrix::activation_form() const {
  return detail::is_quantised(format_) ? ActivationForm::int16 : ActivationForm::f32;
}

void PackedMatrix::dequantize_row(std::size_t row, float* out) const {
  PENSTOCK_CHECK(row < rows_, "row", row, "of", rows_);
  const std::byte* data = tile(row / tile_rows);
  const std::size_t lane = row % tile_rows;
  if (detail::is_quantised(format_)) {
    dequantize_records(detail::record_layout(format_), data, columns_, lane, out);
    return;
  }
  const std::size_t element = block_bytes(format_);
  for (std::size_t column = 0; column < columns_; ++column) {
    out[column] = load_dense(format_, data + (column * tile_rows + lane) * element);
  }
}

}  // namespace penstock::kernels::cpu
