// What a gated FFN makes of a gate and an up value.
#pragma once

#include <cstdint>

namespace penstock::kernels::cpu {

enum class GatedActivation : std::uint8_t {
  silu,     // silu(gate) * up
  clamped,  // g / (1 + e^(-1.702 g)) * (u + 1), with g = min(gate, 7) and u = up within -7 and 7: gpt-oss
};

}  // namespace penstock::kernels::cpu
