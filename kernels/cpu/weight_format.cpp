#include "kernels/cpu/weight_format.hpp"

namespace penstock::kernels::cpu {

std::string_view to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return "f32";
    case WeightFormat::f16:
      return "f16";
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::q8_0:
      return "q8_0";
    case WeightFormat::q4_0:
      return "q4_0";
    case WeightFormat::q4_1:
      return "q4_1";
    case WeightFormat::q4_k:
      return "q4_k";
    case WeightFormat::q6_k:
      return "q6_k";
  }
  return "unknown";
}

std::size_t block_columns(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return 1;
    case WeightFormat::q8_0:
    case WeightFormat::q4_0:
    case WeightFormat::q4_1:
      return 32;
    case WeightFormat::q4_k:
    case WeightFormat::q6_k:
      return 256;
  }
  return 0;
}

std::size_t block_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32:
      return 4;
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return 2;
    case WeightFormat::q8_0:
      return 2 + 32;
    case WeightFormat::q4_0:
      return 2 + 16;
    case WeightFormat::q4_1:
      return 2 + 2 + 16;
    case WeightFormat::q4_k:
      return 2 + 2 + 12 + 128;
    case WeightFormat::q6_k:
      return 128 + 64 + 16 + 2;
  }
  return 0;
}

std::size_t row_bytes(WeightFormat format, std::size_t columns) {
  return columns / block_columns(format) * block_bytes(format);
}

}  // namespace penstock::kernels::cpu
