// Eight lanes in the vector extensions that GCC and Clang have on every processor: the meaning of every operation the
// kernels use, and the level that runs anywhere. Multiply-add rounds twice here and once on AVX2; nothing else differs.
// Internal to level_portable.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half.hpp"

namespace penstock::kernels::cpu::detail {

struct PortableSimd {
  using F = float __attribute__((vector_size(32)));
  using I = std::uint32_t __attribute__((vector_size(32)));  // 8 words, each also two 16-bit halves
  using Signed = std::int32_t __attribute__((vector_size(32)));
  using Halves = std::uint16_t __attribute__((vector_size(32)));
  using SignedHalves = std::int16_t __attribute__((vector_size(32)));
  using Tile = PortableSimd;  // what matrix tiles of 16 rows are computed with
  static constexpr int lanes = 8;
  static constexpr int quantised_tokens = 4;  // at once, so that their sums fill the registers
  static constexpr int dense_tokens = 6;
  using EightHalves = std::uint16_t __attribute__((vector_size(16)));

  template <class Vector>
  static Vector read(const void* from) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  template <class Vector>
  static void write(void* to, const Vector& value) {
    std::memcpy(to, &value, sizeof value);
  }

  static F load(const float* from) { return read<F>(from); }
  static void store(float* to, F value) { write(to, value); }
  static F zero() { return F{}; }
  static F set1(float value) { return value - F{}; }  // not + : that would turn -0 into 0
  static F load_f16(const std::uint16_t* from) {
    const I bits = __builtin_convertvector(read<EightHalves>(from), I);
    const I sign = (bits & 0x8000u) << 16;
    const I magnitude = bits & 0x7fffu;
    const I normal = (magnitude << 13) + (112u << 23);
    const I huge = (magnitude << 13) | 0x7f800000u;
    const I tiny = I(to_float(magnitude) * 0x1p-24f);
    return F(sign | (magnitude >= 0x7c00u ? huge : (magnitude >= 0x0400u ? normal : tiny)));
  }
  static F load_bf16(const std::uint16_t* from) { return F(__builtin_convertvector(read<EightHalves>(from), I) << 16); }
  /// Each lane holds two bf16 values; widens the lower or the upper one.
  static F low_bf16(F pairs) { return F(I(pairs) << 16); }
  static F high_bf16(F pairs) { return F(I(pairs) & 0xffff0000u); }
  static void store_f16(std::uint16_t* to, F value) {
    for (int i = 0; i < 8; ++i) to[i] = f32_to_f16(value[i]);
  }
  static void store_bf16(std::uint16_t* to, F value) {
    for (int i = 0; i < 8; ++i) to[i] = f32_to_bf16(value[i]);
  }

  /// A hint; the address need not be mapped.
  static void prefetch(const void* from) { __builtin_prefetch(from); }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  /// a * b + c
  static F fma(F a, F b, F c) { return a * b + c; }
  /// The second operand if either is NaN, as on x86.
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) { return F(I(a) & 0x7fffffffu); }
  /// Zero where a < b, else value.
  static F zero_if_less(F a, F b, F value) { return a < b ? F{} : value; }
  /// Sum as ((0+4)+(2+6)) + ((1+5)+(3+7)).
  static float sum(F x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
  static float largest(F x) {
    float most = x[0];
    for (int i = 1; i < 8; ++i) most = x[i] > most ? x[i] : most;
    return most;
  }

  static F to_float(I a) { return __builtin_convertvector(Signed(a), F); }
  /// Nearest even, for magnitudes below 2^22, which is all the kernels need; 0x80000000 for others and NaN.
  static I to_int(F a) {
    const F shifted = a + 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the integer
    return abs(a) < 4194304.0f ? I(shifted) - 0x4b400000u : I{} + 0x80000000u;
  }
  /// Two to the power of each integer in -126 .. 127.
  static F power_of_two(I a) { return F((a + 127u) << 23); }

  static I load_words(const void* from) { return read<I>(from); }
  static void store_words(void* to, I value) { write(to, value); }
  static I broadcast_word(const void* from) { return I{} + read<std::uint32_t>(from); }
  static I set1_word(std::int32_t value) { return I{} + static_cast<std::uint32_t>(value); }
  static I bit_and(I a, I b) { return a & b; }
  static I add_words(I a, I b) { return a + b; }
  /// Each half shifted right by Bits, zeros in.
  template <int Bits>
  static I halves_right(I a) {
    return I(Halves(a) >> Bits);
  }
  template <int Bits>
  static I halves_left(I a) {
    return I(Halves(a) << Bits);
  }
  /// Each half shifted right by Bits, sign in.
  template <int Bits>
  static I halves_right_signed(I a) {
    return I(SignedHalves(a) >> Bits);
  }
  /// total + the sum of the products of both signed halves.
  static I accumulate(I total, I a, I b) {
    const Signed low = (Signed(a << 16) >> 16) * (Signed(b << 16) >> 16);
    const Signed high = (Signed(a) >> 16) * (Signed(b) >> 16);
    return total + I(low) + I(high);
  }
  static std::int32_t sum_words(I a) {
    std::uint32_t total = 0;
    for (int i = 0; i < 8; ++i) total += a[i];
    return static_cast<std::int32_t>(total);
  }
  /// 16 words to 16 signed halves with saturation, in order.
  static void store_halves(std::int16_t* to, I a, I b) {
    for (int i = 0; i < 8; ++i) {
      to[i] = narrow(a[i]);
      to[8 + i] = narrow(b[i]);
    }
  }

  /// Rows become columns.
  static void transpose(F (&rows)[8]) {
    float before[8][8];
    float after[8][8];
    std::memcpy(before, rows, sizeof before);
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) after[i][j] = before[j][i];
    }
    std::memcpy(rows, after, sizeof after);
  }

 private:
  static std::int16_t narrow(std::uint32_t word) {
    const auto value = static_cast<std::int32_t>(word);
    return static_cast<std::int16_t>(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
  }
};

}  // namespace penstock::kernels::cpu::detail
