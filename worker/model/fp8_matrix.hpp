// A matrix of a checkpoint with FP8 weights: e4m3 codes and what they are multiplied by. Taken out of a TensorTable
// with its scales, whatever the checkpoint calls them. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "worker/model/tensor_table.hpp"

namespace penstock::worker {

enum class Fp8Granularity : std::uint8_t {
  tensor,  // one scale
  row,     // one for each row
  block,   // one for each 128 rows and 128 columns: [rows / 128][columns / 128], both rounded up
};

struct Fp8Matrix {
  std::uint64_t rows = 0, columns = 0;
  std::vector<std::uint8_t> codes;  // [rows][columns], no NaN among them
  std::vector<float> scales;
  Fp8Granularity granularity = Fp8Granularity::tensor;

  float scale_of(std::uint64_t row, std::uint64_t column) const;
  /// Row `row` as bf16, each weight rounded once from code times scale.
  void widen_row(std::uint64_t row, std::uint16_t* out) const;
};

/// The value of an e4m3 code; 0x7f and 0xff are NaN.
float e4m3_to_f32(std::uint8_t code);

/// Takes NAME.weight and NAME.weight_scale, or NAME.weight_scale_inv, which multiplies as well; drops scales of inputs,
/// which stay bf16 here. Errors name a tensor that is missing, has another shape or holds NaN.
Result<Fp8Matrix> take_fp8(TensorTable& table, const std::string& name, std::uint64_t rows, std::uint64_t columns);

}  // namespace penstock::worker
