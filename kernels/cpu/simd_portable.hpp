// Eight lanes in plain C++: the meaning of every vector operation the kernels use, and the level that runs anywhere.
// Multiply-add rounds twice here and once on AVX2; nothing else differs. Internal to level_portable.cpp and tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half.hpp"

namespace penstock::kernels::cpu::detail {

struct PortableSimd {
  struct F {  // 8 floats
    float lane[8];
  };
  struct I {  // 8 32-bit words, each also two 16-bit halves
    std::uint32_t lane[8];
  };

  template <class Function>
  static F each(Function&& function) {
    F out;
    for (int i = 0; i < 8; ++i) out.lane[i] = function(i);
    return out;
  }
  template <class Function>
  static I each_word(Function&& function) {
    I out;
    for (int i = 0; i < 8; ++i) out.lane[i] = function(i);
    return out;
  }

  static F load(const float* from) {
    F out;
    std::memcpy(out.lane, from, sizeof out.lane);
    return out;
  }
  static void store(float* to, F value) { std::memcpy(to, value.lane, sizeof value.lane); }
  static F zero() { return set1(0); }
  static F set1(float value) {
    return each([&](int) { return value; });
  }
  static F load_f16(const std::uint16_t* from) {
    return each([&](int i) { return f16_to_f32(from[i]); });
  }
  static F load_bf16(const std::uint16_t* from) {
    return each([&](int i) { return bf16_to_f32(from[i]); });
  }
  static void store_f16(std::uint16_t* to, F value) {
    for (int i = 0; i < 8; ++i) to[i] = f32_to_f16(value.lane[i]);
  }
  static void store_bf16(std::uint16_t* to, F value) {
    for (int i = 0; i < 8; ++i) to[i] = f32_to_bf16(value.lane[i]);
  }

  static F add(F a, F b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F div(F a, F b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  /// a * b + c
  static F fma(F a, F b, F c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
  }
  /// The second operand if either is NaN, as on x86.
  static F max(F a, F b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F min(F a, F b) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F abs(F a) {
    return each([&](int i) { return std::fabs(a.lane[i]); });
  }
  /// Zero where a < b, else value.
  static F zero_if_less(F a, F b, F value) {
    return each([&](int i) { return a.lane[i] < b.lane[i] ? 0.0f : value.lane[i]; });
  }
  /// Sum as ((0+4)+(2+6)) + ((1+5)+(3+7)).
  static float sum(F a) {
    const float* x = a.lane;
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  }
  static float largest(F a) { return *std::max_element(a.lane, a.lane + 8); }

  static F to_float(I a) {
    return each([&](int i) { return static_cast<float>(std::bit_cast<std::int32_t>(a.lane[i])); });
  }
  /// Nearest even; 0x80000000 for NaN and what does not fit, as on x86.
  static I to_int(F a) {
    return each_word([&](int i) {
      const float value = a.lane[i];
      if (!(value > -2147483648.0f && value < 2147483648.0f)) return 0x80000000u;
      return std::bit_cast<std::uint32_t>(static_cast<std::int32_t>(std::nearbyintf(value)));
    });
  }
  /// Two to the power of each integer in -126 .. 127.
  static F power_of_two(I a) {
    return each([&](int i) { return std::bit_cast<float>((a.lane[i] + 127u) << 23); });
  }

  static I load_words(const void* from) {
    I out;
    std::memcpy(out.lane, from, sizeof out.lane);
    return out;
  }
  static void store_words(void* to, I value) { std::memcpy(to, value.lane, sizeof value.lane); }
  static I broadcast_word(const void* from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return each_word([&](int) { return word; });
  }
  static I set1_word(std::int32_t value) {
    return each_word([&](int) { return std::bit_cast<std::uint32_t>(value); });
  }
  static I bit_and(I a, I b) {
    return each_word([&](int i) { return a.lane[i] & b.lane[i]; });
  }
  static I add_words(I a, I b) {
    return each_word([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  /// Each half shifted right by Bits, zeros in.
  template <int Bits>
  static I halves_right(I a) {
    return each_word([&](int i) { return ((a.lane[i] & 0xffffu) >> Bits) | ((a.lane[i] >> 16 >> Bits) << 16); });
  }
  template <int Bits>
  static I halves_left(I a) {
    return each_word([&](int i) { return ((a.lane[i] << Bits) & 0xffffu) | ((a.lane[i] >> 16 << Bits) << 16); });
  }
  /// Each half shifted right by Bits, sign in.
  template <int Bits>
  static I halves_right_signed(I a) {
    return each_word([&](int i) {
      const auto low = static_cast<std::uint16_t>(static_cast<std::int16_t>(a.lane[i]) >> Bits);
      const auto high = static_cast<std::uint16_t>(static_cast<std::int16_t>(a.lane[i] >> 16) >> Bits);
      return std::uint32_t{low} | std::uint32_t{high} << 16;
    });
  }
  /// Sum of the products of both signed halves.
  static I multiply_add_halves(I a, I b) {
    return each_word([&](int i) {
      const std::int32_t low = static_cast<std::int16_t>(a.lane[i]) * static_cast<std::int16_t>(b.lane[i]);
      const std::int32_t high = static_cast<std::int16_t>(a.lane[i] >> 16) * static_cast<std::int16_t>(b.lane[i] >> 16);
      return static_cast<std::uint32_t>(low) + static_cast<std::uint32_t>(high);
    });
  }
  static std::int32_t sum_words(I a) {
    std::uint32_t total = 0;
    for (std::uint32_t word : a.lane) total += word;
    return std::bit_cast<std::int32_t>(total);
  }
  /// 16 words to 16 signed halves with saturation, in order.
  static void store_halves(std::int16_t* to, I a, I b) {
    auto narrow = [](std::uint32_t word) {
      return static_cast<std::int16_t>(std::clamp(std::bit_cast<std::int32_t>(word), -32768, 32767));
    };
    for (int i = 0; i < 8; ++i) {
      to[i] = narrow(a.lane[i]);
      to[8 + i] = narrow(b.lane[i]);
    }
  }

  /// Rows become columns.
  static void transpose(F (&rows)[8]) {
    for (int i = 0; i < 8; ++i) {
      for (int j = i + 1; j < 8; ++j) std::swap(rows[i].lane[j], rows[j].lane[i]);
    }
  }
};

}  // namespace penstock::kernels::cpu::detail
