// Row-wise kernels for one vector type S: quantisation, RMS norm, SwiGLU, exp, argmax. Included by level_*.cpp only.
// Every reduction has a fixed order: lanes first (column c in lane c % 8), then the lanes as S::sum says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"

namespace penstock::kernels::cpu::detail {

/// e^x within 2 units in the last place; 0 below -87.3 (so also for -inf), NaN for NaN, e^88 for all x above 88.
template <class S>
inline typename S::F exp(typename S::F x) {
  const auto smallest = S::set1(-87.33654f);
  // max and min return their second operand when one is NaN.
  const auto clamped = S::max(smallest, S::min(S::set1(88.0f), x));
  const auto n = S::to_int(S::mul(clamped, S::set1(1.44269504f)));
  const auto whole = S::to_float(n);
  // r = x - n ln 2, with ln 2 in two parts; then the Taylor-like polynomial of degree 6 on |r| <= ln 2 / 2.
  auto r = S::fma(whole, S::set1(-0.693359375f), clamped);
  r = S::fma(whole, S::set1(2.12194440e-4f), r);
  auto p = S::set1(1.9875691500e-4f);
  p = S::fma(p, r, S::set1(1.3981999507e-3f));
  p = S::fma(p, r, S::set1(8.3334519073e-3f));
  p = S::fma(p, r, S::set1(4.1665795894e-2f));
  p = S::fma(p, r, S::set1(1.6666665459e-1f));
  p = S::fma(p, r, S::set1(5.0000001201e-1f));
  p = S::fma(p, S::mul(r, r), S::add(r, S::set1(1.0f)));
  return S::zero_if_less(x, smallest, S::mul(p, S::power_of_two(n)));
}

/// x / (1 + e^-x)
template <class S>
inline typename S::F silu(typename S::F x) {
  return S::div(x, S::add(S::set1(1.0f), exp<S>(S::sub(S::zero(), x))));
}

/// Quantises block `index` (32 columns, all present) of row `row` of out.
template <class S>
inline void quantize_block(const float* x, const ActivationsRef& out, std::size_t row, std::size_t index) {
  const auto a = S::load(x), b = S::load(x + 8), c = S::load(x + 16), d = S::load(x + 24);
  const auto magnitude = S::max(S::max(S::abs(a), S::abs(b)), S::max(S::abs(c), S::abs(d)));
  const float largest = S::largest(magnitude);
  const std::size_t at = row * out.blocks + index;
  // Integers cannot hold NaN or infinity; a scale of NaN carries them on. Otherwise this adds zero.
  const float poison = S::sum(S::mul(S::add(S::add(a, b), S::add(c, d)), S::zero()));
  const float scale = largest * (1.0f / 32767.0f) + poison;
  // Below 2^-100 the inverse could overflow; such a block is zero for every purpose.
  const auto inverse = S::set1(largest > 0x1p-100f ? 32767.0f / largest : 0.0f);
  const auto qa = S::to_int(S::mul(a, inverse)), qb = S::to_int(S::mul(b, inverse));
  const auto qc = S::to_int(S::mul(c, inverse)), qd = S::to_int(S::mul(d, inverse));
  S::store_halves(out.q + at * 32, qa, qb);
  S::store_halves(out.q + at * 32 + 16, qc, qd);
  // Without a number for a scale there are none for integers either: a sum of 0 cannot overflow what is made of it.
  const std::int32_t sum = scale != scale ? 0 : S::sum_words(S::add_words(S::add_words(qa, qb), S::add_words(qc, qd)));
  out.scale[at] = scale;
  out.sum[at] = sum;
  out.scaled_sum[at] = scale * static_cast<float>(sum);
}

/// Writes columns [begin, end) of a row, whose first is a multiple of 32, in the forms that `out` has. x points at
/// column `begin`; if the last block is cut by the row's end, x must be readable and zero up to the block's end.
template <class S>
inline void store_activations(const float* x, const ActivationsRef& out, std::size_t row, std::size_t begin,
                              std::size_t end) {
  if (out.f32 != nullptr) {
    float* to = out.f32 + row * out.blocks * 32;
    for (std::size_t c = begin; c < end; ++c) to[c] = x[c - begin];
  }
  if (out.q == nullptr) return;
  for (std::size_t c = begin; c < end; c += 32) quantize_block<S>(x + (c - begin), out, row, c / 32);
}

/// Calls store with each piece of up to 32 columns that compute(column, count, piece) has filled.
template <class S, class Compute>
inline void for_each_block(const ActivationsRef& out, std::size_t row, Compute&& compute) {
  alignas(64) float piece[32];
  for (std::size_t c = 0; c < out.columns; c += 32) {
    const std::size_t count = out.columns - c < 32 ? out.columns - c : 32;
    for (std::size_t i = count; i < 32; ++i) piece[i] = 0;
    compute(c, count, piece);
    store_activations<S>(piece, out, row, c, c + count);
  }
}

template <class S>
void quantize(const float* x, std::size_t stride, std::size_t m, const ActivationsRef& out, Slice slice) {
  const IndexRange rows = split(m, slice);
  const ActivationsRef ints = {nullptr, out.q, out.scale, out.scaled_sum, out.sum, out.columns, out.blocks};
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    for_each_block<S>(ints, row, [&](std::size_t c, std::size_t count, float* piece) {
      for (std::size_t i = 0; i < count; ++i) piece[i] = x[row * stride + c + i];
    });
  }
}

/// Sum of squares of a row; the tail joins lanes 0, 1, ...
template <class S>
inline float sum_of_squares(const float* x, std::size_t count) {
  auto total = S::zero();
  std::size_t c = 0;
  for (; c + 8 <= count; c += 8) {
    const auto value = S::load(x + c);
    total = S::fma(value, value, total);
  }
  if (c < count) {
    alignas(32) float tail[8] = {};
    for (std::size_t i = 0; c + i < count; ++i) tail[i] = x[c + i];
    const auto value = S::load(tail);
    total = S::fma(value, value, total);
  }
  return S::sum(total);
}

template <class S>
void rms_norm(const RmsNormCall& call, Slice slice) {
  const IndexRange rows = split(call.m, slice);
  const std::size_t columns = call.out.columns;
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = call.x + row * call.stride;
    if (call.delta != nullptr) {
      const float* delta = call.delta + row * call.stride;
      for (std::size_t c = 0; c < columns; ++c) x[c] += delta[c];
    }
    const float mean = sum_of_squares<S>(x, columns) / static_cast<float>(columns);
    const float inverse = 1.0f / __builtin_sqrtf(mean + call.epsilon);
    for_each_block<S>(call.out, row, [&](std::size_t c, std::size_t count, float* piece) {
      for (std::size_t i = 0; i < count; ++i) piece[i] = x[c + i] * inverse * call.weight[c + i];
    });
  }
}

template <class S>
void swiglu(const SwigluCall& call, Slice slice) {
  const IndexRange rows = split(call.m, slice);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* gates = call.gate + row * call.stride;
    const float* ups = call.up + row * call.stride;
    for_each_block<S>(call.out, row, [&](std::size_t c, std::size_t count, float* piece) {
      alignas(32) float gate[32] = {};
      for (std::size_t i = 0; i < count; ++i) gate[i] = gates[c + i];
      for (std::size_t i = 0; i < 32; i += 8) S::store(gate + i, silu<S>(S::load(gate + i)));
      for (std::size_t i = 0; i < count; ++i) piece[i] = gate[i] * ups[c + i];
    });
  }
}

template <class S>
std::size_t argmax(const float* logits, std::size_t count) {
  auto best = S::set1(-__builtin_inff());
  std::size_t c = 0;
  for (; c + 8 <= count; c += 8) best = S::max(S::load(logits + c), best);  // NaN: keeps best
  float largest = S::largest(best);
  for (; c < count; ++c) {
    if (logits[c] > largest) largest = logits[c];
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (logits[i] == largest) return i;
  }
  return 0;
}

}  // namespace penstock::kernels::cpu::detail
