// Layers of experts in double precision and the plainest loops, as reference.hpp has the rest. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace penstock::kernels::reference {

/// The experts that a token chooses by its logits: the `per_token` largest by falling logit, of equals the lower index
/// first. Their weights are the softmax over all logits, or over the chosen ones.
struct Routing {
  std::vector<std::size_t> experts;
  Vector weights;
};
enum class RoutingSum : std::uint8_t { all, chosen };
Routing route(const Vector& logits, std::size_t per_token, RoutingSum sum);

/// One expert for one token: silu(gate) * up of gate_up[2 * ffn][hidden], all gate rows first.
Vector expert_activation(const Vector& gate_up, const Vector& x, std::size_t ffn);

}  // namespace penstock::kernels::reference
