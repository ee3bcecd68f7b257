// The choice of experts for one vector type S; included by level_*.cpp only. A row is computed by itself; the sum over
// all experts has the order of elementwise_impl.hpp, that over the chosen ones goes from the largest weight down.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"

namespace penstock::kernels::cpu::detail {

/// NaN comes after all numbers, in the order of experts.
template <class S>
inline float rank_of(float logit) {
  return logit == logit ? logit : -__builtin_inff();
}

/// chosen[per_token] = experts by falling logit, of equals the lower index first.
template <class S>
void choose_experts(const float* logits, std::size_t experts, std::size_t per_token, std::uint32_t* chosen) {
  std::size_t count = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const float rank = rank_of<S>(logits[e]);
    if (count == per_token && !(rank > rank_of<S>(logits[chosen[count - 1]]))) continue;
    std::size_t at = count < per_token ? count++ : count - 1;
    for (; at > 0 && rank > rank_of<S>(logits[chosen[at - 1]]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<std::uint32_t>(e);
  }
}

/// Sum of e^(logit - largest) over all experts.
template <class S>
float sum_of_exponentials(const float* logits, std::size_t experts, float largest) {
  const auto shift = S::set1(largest);
  auto total = S::zero();
  std::size_t e = 0;
  for (; e + 8 <= experts; e += 8) total = S::add(total, exp<S>(S::sub(S::load(logits + e), shift)));
  if (e < experts) {
    alignas(32) float tail[8];
    for (std::size_t i = 0; i < 8; ++i) tail[i] = e + i < experts ? logits[e + i] : -__builtin_inff();
    total = S::add(total, exp<S>(S::sub(S::load(tail), shift)));
  }
  return S::sum(total);
}

template <class S>
void route(const RouteCall& call, Slice slice) {
  const IndexRange rows = split(call.m, slice);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* logits = call.logits + row * call.experts;
    std::uint32_t* chosen = call.chosen + row * call.per_token;
    float* weights = call.weights + row * call.per_token;
    choose_experts<S>(logits, call.experts, call.per_token, chosen);
    const float largest = logits[chosen[0]];
    float total = 0;
    for (std::size_t i = 0; i < call.per_token; i += 8) {
      alignas(32) float values[8] = {};
      const std::size_t count = call.per_token - i < 8 ? call.per_token - i : 8;
      for (std::size_t j = 0; j < count; ++j) values[j] = logits[chosen[i + j]] - largest;
      S::store(values, exp<S>(S::load(values)));
      for (std::size_t j = 0; j < count; ++j) total += weights[i + j] = values[j];
    }
    if (!call.renormalises) total = sum_of_exponentials<S>(logits, call.experts, largest);
    for (std::size_t i = 0; i < call.per_token; ++i) weights[i] /= total;
  }
}

}  // namespace penstock::kernels::cpu::detail
