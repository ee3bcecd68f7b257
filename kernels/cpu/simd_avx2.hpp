// Eight lanes with AVX2, FMA and F16C; simd_portable.hpp says what each operation means. Only for translation units
// that are compiled with these instruction sets, and internal to level_avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define PENSTOCK_INLINE [[gnu::always_inline]] static inline

namespace penstock::kernels::cpu::detail {

struct Avx2Simd {
  using F = __m256;
  using I = __m256i;
  using Tile = Avx2Simd;  // what matrix tiles of 16 rows are computed with
  static constexpr int lanes = 8;
  static constexpr int quantised_tokens = 4;  // at once, so that their sums fill the registers
  static constexpr int dense_tokens = 6;

  PENSTOCK_INLINE F load(const float* from) { return _mm256_loadu_ps(from); }
  PENSTOCK_INLINE void store(float* to, F value) { _mm256_storeu_ps(to, value); }
  PENSTOCK_INLINE F zero() { return _mm256_setzero_ps(); }
  PENSTOCK_INLINE F set1(float value) { return _mm256_set1_ps(value); }
  PENSTOCK_INLINE F load_f16(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  PENSTOCK_INLINE F load_bf16(const std::uint16_t* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  PENSTOCK_INLINE F low_bf16(F pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16)); }
  PENSTOCK_INLINE F high_bf16(F pairs) { return _mm256_and_ps(pairs, _mm256_castsi256_ps(_mm256_set1_epi32(-65536))); }
  PENSTOCK_INLINE void store_f16(std::uint16_t* to, F value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  PENSTOCK_INLINE void store_bf16(std::uint16_t* to, F value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }

  PENSTOCK_INLINE void prefetch(const void* from) { _mm_prefetch(static_cast<const char*>(from), _MM_HINT_T0); }

  PENSTOCK_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  PENSTOCK_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  PENSTOCK_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  PENSTOCK_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
  PENSTOCK_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  PENSTOCK_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
  PENSTOCK_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
  PENSTOCK_INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  PENSTOCK_INLINE F zero_if_less(F a, F b, F value) { return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), value); }
  PENSTOCK_INLINE float sum(F a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  PENSTOCK_INLINE float largest(F a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  PENSTOCK_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  PENSTOCK_INLINE I to_int(F a) { return _mm256_cvtps_epi32(a); }
  PENSTOCK_INLINE F power_of_two(I a) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(a, _mm256_set1_epi32(127)), 23));
  }

  PENSTOCK_INLINE I load_words(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  PENSTOCK_INLINE void store_words(void* to, I value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }
  PENSTOCK_INLINE I broadcast_word(const void* from) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(from)));
  }
  PENSTOCK_INLINE I set1_word(std::int32_t value) { return _mm256_set1_epi32(value); }
  PENSTOCK_INLINE I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  PENSTOCK_INLINE I add_words(I a, I b) { return _mm256_add_epi32(a, b); }
  template <int Bits>
  PENSTOCK_INLINE I halves_right(I a) {
    return _mm256_srli_epi16(a, Bits);
  }
  template <int Bits>
  PENSTOCK_INLINE I halves_left(I a) {
    return _mm256_slli_epi16(a, Bits);
  }
  template <int Bits>
  PENSTOCK_INLINE I halves_right_signed(I a) {
    return _mm256_srai_epi16(a, Bits);
  }
  PENSTOCK_INLINE I accumulate(I total, I a, I b) {
    total = _mm256_add_epi32(total, _mm256_madd_epi16(a, b));
    // Without this the compiler turns a chain of exact sums into a tree, whose leaves do not fit the registers.
    asm("" : "+x"(total));
    return total;
  }
  PENSTOCK_INLINE std::int32_t sum_words(I a) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
  }
  PENSTOCK_INLINE void store_halves(std::int16_t* to, I a, I b) {
    store_words(to, _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
  }

  PENSTOCK_INLINE void transpose(F (&rows)[8]) {
    F pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    F quads[8];
    for (int i = 0; i < 8; i += 4) {
      quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
      quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
  }
};

}  // namespace penstock::kernels::cpu::detail
