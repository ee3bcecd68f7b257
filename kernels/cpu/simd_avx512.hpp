// AVX-512 beside AVX2: a tile of 16 rows is one register, so matrix products take 16 lanes; everything else takes the
// eight lanes of AVX2, whose order of sums it keeps. Results have the bits of the avx2 level. For translation units
// that are compiled with these instruction sets, and internal to level_avx512*.cpp.
//
// VPDPWSSD adds the products of 16-bit pairs in one instruction where AVX2 needs two. VDPBF16PS is not used: it would
// round activations to 8 bits.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd_avx2.hpp"

namespace penstock::kernels::cpu::detail {

/// What the kernels of matrix tiles need, on 16 lanes.
struct Avx512Tile {
  using F = __m512;
  using I = __m512i;
  static constexpr int lanes = 16;
  static constexpr int quantised_tokens = 8;  // 16 of 32 registers are sums: enough to hide their latency
  static constexpr int dense_tokens = 12;

  PENSTOCK_INLINE F load(const float* from) { return _mm512_loadu_ps(from); }
  PENSTOCK_INLINE void store(float* to, F value) { _mm512_storeu_ps(to, value); }
  PENSTOCK_INLINE F set1(float value) { return _mm512_set1_ps(value); }
  PENSTOCK_INLINE F load_f16(const std::uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  PENSTOCK_INLINE F load_bf16(const std::uint16_t* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  PENSTOCK_INLINE void prefetch(const void* from) { _mm_prefetch(static_cast<const char*>(from), _MM_HINT_T0); }
  PENSTOCK_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  PENSTOCK_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  PENSTOCK_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }

  PENSTOCK_INLINE I load_words(const void* from) { return _mm512_loadu_si512(from); }
  PENSTOCK_INLINE I broadcast_word(const void* from) {
    std::int32_t word;
    std::memcpy(&word, from, sizeof word);
    return _mm512_set1_epi32(word);
  }
  PENSTOCK_INLINE I set1_word(std::int32_t value) { return _mm512_set1_epi32(value); }
  PENSTOCK_INLINE I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  template <int Bits>
  PENSTOCK_INLINE I halves_right(I a) {
    return _mm512_srli_epi16(a, Bits);
  }
  template <int Bits>
  PENSTOCK_INLINE I halves_left(I a) {
    return _mm512_slli_epi16(a, Bits);
  }
  template <int Bits>
  PENSTOCK_INLINE I halves_right_signed(I a) {
    return _mm512_srai_epi16(a, Bits);
  }
  PENSTOCK_INLINE I accumulate(I total, I a, I b) {
    total = _mm512_add_epi32(total, _mm512_madd_epi16(a, b));
    asm("" : "+v"(total));  // as on AVX2: a chain, not a tree
    return total;
  }
};

struct Avx512Simd : Avx2Simd {
  using Tile = Avx512Tile;
};

#if defined(__AVX512VNNI__)
struct Avx512VnniTile : Avx512Tile {
  PENSTOCK_INLINE I accumulate(I total, I a, I b) { return _mm512_dpwssd_epi32(total, a, b); }
};

struct Avx512VnniSimd : Avx2Simd {
  using Tile = Avx512VnniTile;
};
#endif

}  // namespace penstock::kernels::cpu::detail
