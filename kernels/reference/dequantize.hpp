// Exact decoding of weight rows, written from the definitions of the formats and independently of kernels/cpu, which
// is tested against it. Slow and plain; any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::reference {

/// The row's values as the format defines them in float arithmetic (products first, then the minimum).
std::vector<float> dequantize_row(cpu::WeightFormat format, const std::byte* row, std::size_t columns);

}  // namespace penstock::kernels::reference
