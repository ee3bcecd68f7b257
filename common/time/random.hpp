// Random numbers that can be replayed: a small seeded generator for choices (ties, jitter, simulations), and a
// counter-based one for sampling, where the number depends only on the key and the counter, not on call order.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through splitmix64. One owner; not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::uint64_t next();
  /// Uniform in [0, bound); bound > 0. Unbiased (Lemire's multiply and reject).
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1), 53 bits.
  double uniform();

 private:
  std::array<std::uint64_t, 4> state_;
};

/// Philox4x32-10 (Salmon et al., SC 2011): four 32-bit words for one (key, counter). Pure; any thread.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 2> key, std::array<std::uint32_t, 4> counter);

}  // namespace penstock
