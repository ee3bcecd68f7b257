#include "kernels/cpu/block_codec.hpp"

#include <cstring>

#include "kernels/cpu/half.hpp"

namespace penstock::kernels::cpu::detail {
namespace {

std::uint8_t byte_at(const std::byte* data, std::size_t index) {
  return std::to_integer<std::uint8_t>(data[index]);
}

std::uint16_t half_at(const std::byte* data) {
  std::uint16_t bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

/// 16 bytes: columns 0-15 in the low nibbles, 16-31 in the high ones.
void split_nibbles(const std::byte* data, std::int32_t offset, DecodedBlock& out) {
  for (std::size_t i = 0; i < 16; ++i) {
    out.codes[i] = (byte_at(data, i) & 15) - offset;
    out.codes[16 + i] = (byte_at(data, i) >> 4) - offset;
  }
}

DecodedBlock decode_q8_0(const std::byte* data) {
  DecodedBlock out;
  out.stored_halves[0] = half_at(data);
  out.scales.fill(f16_to_f32(out.stored_halves[0]));
  for (std::size_t i = 0; i < 32; ++i) out.codes[i] = static_cast<std::int8_t>(byte_at(data, 2 + i));
  return out;
}

DecodedBlock decode_q4_0(const std::byte* data) {
  DecodedBlock out;
  out.stored_halves[0] = half_at(data);
  out.scales.fill(f16_to_f32(out.stored_halves[0]));
  split_nibbles(data + 2, 8, out);
  return out;
}

DecodedBlock decode_q4_1(const std::byte* data) {
  DecodedBlock out;
  out.stored_halves = {half_at(data), half_at(data + 2)};
  out.scales.fill(f16_to_f32(out.stored_halves[0]));
  out.min = f16_to_f32(out.stored_halves[1]);
  split_nibbles(data + 4, 0, out);
  return out;
}

/// d, dmin, 12 bytes with eight 6-bit scales and eight 6-bit mins, then four groups of 32 bytes; a group's low nibbles
/// are sub-block 2g, its high nibbles sub-block 2g + 1.
DecodedBlock decode_q4_k(const std::byte* data, std::size_t sub) {
  const std::byte* packed = data + 4;
  unsigned scale;
  unsigned min;
  if (sub < 4) {
    scale = byte_at(packed, sub) & 63u;
    min = byte_at(packed, sub + 4) & 63u;
  } else {
    scale = (byte_at(packed, sub + 4) & 15u) | (unsigned{byte_at(packed, sub - 4)} >> 6 << 4);
    min = (unsigned{byte_at(packed, sub + 4)} >> 4) | (unsigned{byte_at(packed, sub)} >> 6 << 4);
  }
  DecodedBlock out;
  out.scales.fill(f16_to_f32(half_at(data)) * static_cast<float>(scale));
  out.min = -(f16_to_f32(half_at(data + 2)) * static_cast<float>(min));
  const std::byte* codes = data + 16 + sub / 2 * 32;
  for (std::size_t i = 0; i < 32; ++i) out.codes[i] = (byte_at(codes, i) >> (sub % 2 * 4)) & 15;
  return out;
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales (one each 16 columns), d. In each half of 128
/// columns, quarter t (32 columns) takes its low nibbles from 32 bytes and its high pair from bits 2t.
DecodedBlock decode_q6_k(const std::byte* data, std::size_t sub) {
  const std::size_t half = sub / 4;
  const std::size_t quarter = sub % 4;
  const std::byte* low = data + half * 64 + quarter % 2 * 32;
  const std::byte* high = data + 128 + half * 32;
  const std::byte* scales = data + 192 + half * 8 + quarter * 2;
  const float d = f16_to_f32(half_at(data + 208));
  DecodedBlock out;
  for (std::size_t i = 0; i < 32; ++i) {
    const unsigned nibble = (byte_at(low, i) >> (quarter / 2 * 4)) & 15u;
    const unsigned pair = (byte_at(high, i) >> (quarter * 2)) & 3u;
    out.codes[i] = static_cast<std::int32_t>(nibble | pair << 4) - 32;
  }
  for (std::size_t s = 0; s < 2; ++s) {
    out.scales[s] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(scales, s)));
  }
  return out;
}

}  // namespace

DecodedBlock decode_block(WeightFormat format, const std::byte* row, std::size_t index) {
  const std::size_t per_block = block_columns(format) / 32;
  if (per_block == 0) return {};  // dense: never asked
  const std::byte* data = row + index / per_block * block_bytes(format);
  switch (format) {
    case WeightFormat::q8_0:
      return decode_q8_0(data);
    case WeightFormat::q4_0:
      return decode_q4_0(data);
    case WeightFormat::q4_1:
      return decode_q4_1(data);
    case WeightFormat::q4_k:
      return decode_q4_k(data, index % per_block);
    case WeightFormat::q6_k:
      return decode_q6_k(data, index % per_block);
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
  return {};
}

}  // namespace penstock::kernels::cpu::detail
