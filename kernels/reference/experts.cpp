#include "kernels/reference/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::kernels::reference {

std::vector<ExpertChoice> choose_experts(const Vector& logits, std::size_t chosen, bool renormalised) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (std::size_t i = 0; i < (renormalised ? chosen : logits.size()); ++i) {
    sum += std::exp(logits[order[i]] - logits[order[0]]);
  }
  std::vector<ExpertChoice> choices;
  for (std::size_t i = 0; i < chosen; ++i) {
    choices.push_back({order[i], std::exp(logits[order[i]] - logits[order[0]]) / sum});
  }
  return choices;
}

Vector expert_activation(const Vector& gate_up, const Vector& x, std::size_t ffn) {
  const Vector both = matmul(gate_up, x, 2 * ffn, x.size(), 1);
  Vector activated(ffn);
  for (std::size_t i = 0; i < ffn; ++i) activated[i] = silu(both[i]) * both[ffn + i];
  return activated;
}

}  // namespace penstock::kernels::reference
