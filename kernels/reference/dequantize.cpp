#include "kernels/reference/dequantize.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace penstock::kernels::reference {
namespace {

using cpu::WeightFormat;

unsigned octet(const std::byte* data, std::size_t index) {
  return std::to_integer<unsigned>(data[index]);
}

float half(const std::byte* data) {
  const unsigned bits = octet(data, 0) | octet(data, 1) << 8;
  const unsigned exponent = bits >> 10 & 31u;
  const unsigned fraction = bits & 1023u;
  double value;
  if (exponent == 31) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(fraction), -24);
  } else {
    value = std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25);
  }
  return static_cast<float>((bits & 0x8000u) != 0 ? -value : value);
}

float brain_half(const std::byte* data) {
  const std::uint32_t bits = octet(data, 0) << 16 | octet(data, 1) << 24;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void super_block_q4_k(const std::byte* data, float* out) {
  const float d = half(data);
  const float dmin = half(data + 2);
  for (std::size_t sub = 0; sub < 8; ++sub) {
    const std::byte* s = data + 4;
    const unsigned scale = sub < 4 ? octet(s, sub) % 64 : octet(s, sub + 4) % 16 + octet(s, sub - 4) / 64 * 16;
    const unsigned min = sub < 4 ? octet(s, sub + 4) % 64 : octet(s, sub + 4) / 16 + octet(s, sub) / 64 * 16;
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned pair = octet(data, 16 + sub / 2 * 32 + i);
      const unsigned code = sub % 2 == 0 ? pair % 16 : pair / 16;
      const float product = d * static_cast<float>(scale) * static_cast<float>(code);
      out[sub * 32 + i] = product - dmin * static_cast<float>(min);
    }
  }
}

void super_block_q6_k(const std::byte* data, float* out) {
  const float d = half(data + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t big = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const unsigned low_pair = octet(data, big * 64 + quarter % 2 * 32 + lane);
    const unsigned low = quarter < 2 ? low_pair % 16 : low_pair / 16;
    const unsigned high = octet(data, 128 + big * 32 + lane) >> (2 * quarter) & 3u;
    const auto scale = static_cast<std::int8_t>(octet(data, 192 + i / 16));
    out[i] = d * static_cast<float>(scale) * (static_cast<float>(low + 16 * high) - 32.0f);
  }
}

void one_block(WeightFormat format, const std::byte* data, float* out) {
  switch (format) {
    case WeightFormat::f32:
      std::memcpy(out, data, sizeof *out);
      return;
    case WeightFormat::f16:
      *out = half(data);
      return;
    case WeightFormat::bf16:
      *out = brain_half(data);
      return;
    case WeightFormat::q8_0:
      for (std::size_t i = 0; i < 32; ++i) {
        out[i] = half(data) * static_cast<float>(static_cast<std::int8_t>(octet(data, 2 + i)));
      }
      return;
    case WeightFormat::q4_0:
      for (std::size_t i = 0; i < 16; ++i) {
        out[i] = half(data) * (static_cast<float>(octet(data, 2 + i) % 16) - 8.0f);
        out[i + 16] = half(data) * (static_cast<float>(octet(data, 2 + i) / 16) - 8.0f);
      }
      return;
    case WeightFormat::q4_1:
      for (std::size_t i = 0; i < 16; ++i) {
        out[i] = half(data) * static_cast<float>(octet(data, 4 + i) % 16) + half(data + 2);
        out[i + 16] = half(data) * static_cast<float>(octet(data, 4 + i) / 16) + half(data + 2);
      }
      return;
    case WeightFormat::q4_k:
      super_block_q4_k(data, out);
      return;
    case WeightFormat::q6_k:
      super_block_q6_k(data, out);
      return;
  }
}

}  // namespace

std::vector<float> dequantize_row(WeightFormat format, const std::byte* row, std::size_t columns) {
  std::vector<float> out(columns);
  const std::size_t step = cpu::block_columns(format);
  for (std::size_t c = 0; c < columns; c += step, row += cpu::block_bytes(format)) {
    one_block(format, row, out.data() + c);
  }
  return out;
}

}  // namespace penstock::kernels::reference
