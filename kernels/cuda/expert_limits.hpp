// Bounds of layers of experts. Plain values, also in device code.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

constexpr std::uint32_t experts_max = 256, chosen_experts_max = 16;
/// Up to so many tokens are few: weights are read once for up to eight of them.
constexpr std::uint32_t few_expert_tokens = 64;

}  // namespace penstock::kernels::cuda
