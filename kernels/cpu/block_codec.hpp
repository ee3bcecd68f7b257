// Decodes 32 columns of a quantised GGUF row into integers and scales: weight = scale * code + min. Used at load only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::cpu::detail {

struct DecodedBlock {
  std::array<std::int32_t, 32> codes;            // signed: the offset of q4_0 is already taken off
  std::array<float, 2> scales;                   // for columns 0-15 and 16-31; equal unless the format has both
  float min = 0;                                 // q4_1, q4_k
  std::array<std::uint16_t, 2> stored_halves{};  // the file's 16-bit scale and min, for formats that keep them
};

/// Columns [32 * index, 32 * index + 32) of the row that starts at `row`.
DecodedBlock decode_block(WeightFormat format, const std::byte* row, std::size_t index);

}  // namespace penstock::kernels::cpu::detail
