// Where a random test begins: PENSTOCK_SEED replays what a failure printed.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace penstock {

inline std::uint64_t first_seed(std::uint64_t otherwise = 1) {
  const char* chosen = std::getenv("PENSTOCK_SEED");
  return chosen == nullptr ? otherwise : std::strtoull(chosen, nullptr, 10);
}

}  // namespace penstock
