// Matrices in MXFP4, as gpt-oss keeps its experts: e2m1 codes, two in a byte, the lower half first, and for each 32 of
// them in a row an exponent of two. bf16 holds every such value exactly. Views into a TensorTable's memory; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

struct Mxfp4Matrix {
  static constexpr std::uint64_t block = 32;

  std::uint64_t rows = 0, columns = 0;
  TensorView codes;   // [rows * columns / 32][16 bytes]
  TensorView scales;  // [.. rows][columns / 32] exponents plus 127, none above `scale_max`

  static constexpr unsigned scale_max = 252;  // 6 * 2^125 is finite
  /// Row `row` as bf16.
  void widen_row(std::uint64_t row, std::uint16_t* out) const;
};

/// Takes NAME_blocks [matrices][rows][columns / 32][16] and NAME_scales out, all matrices one below the other. Errors
/// name a tensor that is missing, has another shape or a scale beyond what bf16 holds.
Result<Mxfp4Matrix> take_mxfp4(TensorTable& table, const std::string& name, std::uint64_t matrices, std::uint64_t rows,
                               std::uint64_t columns);

}  // namespace penstock::worker
