// Storage formats of weights, as GGUF and safetensors hold them (blocks of a row are contiguous, rows follow each
// other).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::kernels::cpu {

enum class WeightFormat : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k };

std::string_view to_string(WeightFormat format);

/// Weights in one block: 1 for dense formats, 32 or 256 otherwise. A row is a whole number of blocks.
std::size_t block_columns(WeightFormat format);
/// Bytes of one block.
std::size_t block_bytes(WeightFormat format);
/// Bytes of a row of `columns` weights; `columns` must be a multiple of block_columns().
std::size_t row_bytes(WeightFormat format, std::size_t columns);

}  // namespace penstock::kernels::cpu
