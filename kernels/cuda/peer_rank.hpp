// A rank of a PeerGroup as kernels get it: a plain value for the host API and for device code, without any header of
// the library.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

constexpr std::uint32_t peer_ranks_max = 8;
/// What one round of a collective sends at most, of all ranks together, in pieces of 16 bytes: 4 MiB.
constexpr std::uint32_t peer_round_pieces = 262144;
constexpr std::uint64_t peer_staging_bytes = 4ull * peer_round_pieces * 16;  // on each GPU

/// Counts rounds on one GPU; in its memory.
struct PeerState {
  std::uint32_t round;      // completed; its lowest bit picks the half of the staging
  std::uint32_t is_broken;  // kernels end without doing anything
  std::uint32_t arrived;    // blocks of the running kernel that know the round
  std::uint32_t unused;
};

/// One rank's view, as kernels get it. Addresses are of GPU memory, `report` of pinned host memory.
struct PeerRank {
  void* staging[peer_ranks_max] = {};  // of all ranks
  PeerState* state = nullptr;
  std::uint64_t* report = nullptr;  // round << 8 | 1 + the rank that was missing; 0: none was
  std::uint64_t deadline_ns = 0;
  std::uint32_t rank = 0, ranks = 0;
};

}  // namespace penstock::kernels::cuda
