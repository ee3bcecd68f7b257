// Layers of experts in double precision and the plainest loops, as reference.hpp has the rest. For tests only.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace penstock::kernels::reference {

struct ExpertChoice {
  std::size_t expert = 0;
  double weight = 0;
};

/// The `chosen` experts of one token with the largest logits, of equals the lower number first, each with its softmax
/// over all logits, or over the chosen ones if `renormalised`.
std::vector<ExpertChoice> choose_experts(const Vector& logits, std::size_t chosen, bool renormalised);

/// One expert for one token: silu(gate) * up of gate_up[2 * ffn][hidden], all gate rows first.
Vector expert_activation(const Vector& gate_up, const Vector& x, std::size_t ffn);

}  // namespace penstock::kernels::reference
