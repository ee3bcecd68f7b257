#include "kernels/reference/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::kernels::reference {

Routing route(const Vector& logits, std::size_t per_token, RoutingSum sum) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (std::size_t i = 0; i < (sum == RoutingSum::all ? order.size() : per_token); ++i) {
    total += std::exp(logits[order[i]] - logits[order[0]]);
  }
  Routing routing;
  for (std::size_t i = 0; i < per_token; ++i) {
    routing.experts.push_back(order[i]);
    routing.weights.push_back(std::exp(logits[order[i]] - logits[order[0]]) / total);
  }
  return routing;
}

Vector expert_activation(const Vector& gate_up, const Vector& x, std::size_t ffn) {
  const Vector both = matmul(gate_up, x, 2 * ffn, x.size(), 1);
  Vector activated(ffn);
  for (std::size_t i = 0; i < ffn; ++i) activated[i] = silu(both[i]) * both[ffn + i];
  return activated;
}

}  // namespace penstock::kernels::reference
