// How a tile of 16 rows lies in memory; shared by packing and by the kernels of every level. Internal to this folder.
//
// Dense formats: [column][16 rows] of the format's own elements.
// Quantised formats: for each 32 columns a record of
//   scales  16-bit floats as in the file, or floats where the format's scale is a product: [scales_per_block][16 rows]
//   mins    q4_1 and q4_k only, [16 rows], same type: a weight is scale * q + min
//   codes   [step][16 rows] 32-bit words.
// A word of 4-bit codes holds 8 columns c .. c+7 of its row: nibble p of the low half is column c + 2p, nibble p of the
// high half is column c + 2p + 1, so that one shift and one mask give 8 rows' pairs for a 16-bit multiply-add.
// A word of 8-bit codes holds 4 columns: bytes c, c+2, c+1, c+3, for the same reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::cpu::detail {

inline constexpr std::size_t tile_rows = 16;
inline constexpr std::size_t block = 32;

/// Properties of a quantised format's record. The integer that multiplies an activation is code - code_offset.
struct RecordLayout {
  std::size_t code_bits = 0;         // 4 or 8; 0: a dense format
  std::size_t scales_per_block = 1;  // 1, or 2 for a scale each 16 columns
  bool float_scales = false;         // otherwise 16-bit
  bool has_min = false;
  bool signed_codes = false;  // 8-bit two's complement; otherwise unsigned
  std::int32_t code_offset = 0;

  constexpr std::size_t scale_bytes() const { return float_scales ? 4 : 2; }
  constexpr std::size_t min_at() const { return scales_per_block * tile_rows * scale_bytes(); }
  constexpr std::size_t codes_at() const { return min_at() + (has_min ? tile_rows * scale_bytes() : 0); }
  constexpr std::size_t bytes() const { return codes_at() + tile_rows * block * code_bits / 8; }
};

constexpr RecordLayout record_layout(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return {};
    case WeightFormat::q8_0:
      return {.code_bits = 8, .code_offset = 128};
    case WeightFormat::q4_0:
      return {.code_bits = 4, .code_offset = 8};
    case WeightFormat::q4_1:
      return {.code_bits = 4, .has_min = true};
    case WeightFormat::q4_k:
      return {.code_bits = 4, .float_scales = true, .has_min = true};
    case WeightFormat::q6_k:
      return {.code_bits = 8, .scales_per_block = 2, .float_scales = true, .signed_codes = true};
  }
  return {};
}

constexpr bool is_quantised(WeightFormat format) {
  return record_layout(format).code_bits != 0;
}

/// Lowest bit of the code of column `inside` of a word.
constexpr std::size_t code_bit(std::size_t code_bits, std::size_t inside) {
  return inside % 2 * 16 + inside / 2 * code_bits;
}

/// Byte and shift of the code of (row in tile, column in block) inside the codes of a record.
struct CodePlace {
  std::size_t byte = 0;
  unsigned shift = 0;
};

constexpr CodePlace code_place(std::size_t code_bits, std::size_t row, std::size_t column) {
  const std::size_t word_columns = 32 / code_bits;
  const std::size_t bit = code_bit(code_bits, column % word_columns);
  return {(column / word_columns * tile_rows + row) * 4 + bit / 8, static_cast<unsigned>(bit % 8)};
}

}  // namespace penstock::kernels::cpu::detail
