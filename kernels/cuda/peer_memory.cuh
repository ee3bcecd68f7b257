// How kernels of several GPUs hand values to each other: a value is its own signal. Staging is full of a word that no
// sent value has, two NaN with all bits set; a reader looks until all four words of its 16 bytes are something else,
// takes them and puts the word back. No flags, no fences: a 32-bit word arrives whole or not at all.
//
// A slot is written again two rounds later. Its writer has by then finished the round between, for which it needed
// values of every other rank; those sent theirs after the kernel (or, within a kernel, the fence) behind their reading
// of this round. So two halves of staging are enough. Every rank sends to every other in every round.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/peer_rank.hpp"

namespace penstock::kernels::cuda::device {

constexpr std::uint32_t empty_word = 0xffffffffu, other_nans = 0x7fff7fffu;
constexpr unsigned looks_between_clocks = 256;  // about 0.2 ms

__device__ inline std::uint32_t sendable(std::uint32_t word) {
  return word == empty_word ? other_nans : word;
}
__device__ inline void send(uint4* slot, const uint4& value) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(slot), "r"(sendable(value.x)),
               "r"(sendable(value.y)), "r"(sendable(value.z)), "r"(sendable(value.w))
               : "memory");
}
__device__ inline uint4 look(const uint4* slot) {
  uint4 value;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(slot)
               : "memory");
  return value;
}
__device__ inline void empty(uint4* slot) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(slot), "r"(empty_word) : "memory");
}
__device__ inline bool has_come(const uint4& value) {
  return value.x != empty_word && value.y != empty_word && value.z != empty_word && value.w != empty_word;
}
__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
/// What this thread did before is seen by other GPUs before what it does after.
__device__ inline void fence_of_system() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/// The round that a kernel begins with, or that it must do nothing.
struct Turn {
  std::uint32_t round;
  bool is_broken;
};
/// After wait_for_predecessor().
__device__ inline Turn begin_turn(const PeerState* state) {
  std::uint32_t round, broken;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];" : "=r"(round), "=r"(broken) : "l"(state) : "memory");
  return {round, broken != 0};
}
/// Counts the rounds of a kernel when its last block knows the one it begins with. All threads of all blocks say so
/// after begin_turn(), and let finish() when their values have come: the answer of the count takes as long as a
/// sending.
class TurnEnd {
 public:
  __device__ TurnEnd(PeerState* state, const Turn& turn, std::uint32_t rounds)
      : state_(state), next_(turn.round + rounds) {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before_) : "l"(&state->arrived) : "memory");
    }
  }
  __device__ void finish() const {
    if (threadIdx.x != 0 || before_ + 1 != gridDim.x) return;
    state_->arrived = 0;
    state_->round = next_;
  }

 private:
  PeerState* state_;
  std::uint32_t next_, before_ = 0;
};

/// The staging of a rank: two halves, each with a place for what is to be added up and one for sums.
__device__ inline uint4* staging(const PeerRank& peers, int owner, std::uint32_t round, bool of_sums) {
  const std::uint32_t quarter = (round & 1u) * 2 + (of_sums ? 1 : 0);
  return static_cast<uint4*>(peers.staging[owner]) + std::size_t{quarter} * peer_round_pieces;
}
/// Where in it what rank `source` sends begins.
template <int ranks>
__device__ constexpr std::uint32_t share_of(int source) {
  return static_cast<std::uint32_t>(source) * (peer_round_pieces / ranks);
}

/// Says once that a rank did not come, and makes all later kernels of this rank end at once.
__device__ inline void give_up(const PeerRank& peers, std::uint32_t round, int missing) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(&peers.state->is_broken) : "memory");
  const std::uint64_t report = std::uint64_t{round} << 8 | static_cast<unsigned>(missing + 1);
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(peers.report), "l"(report) : "memory");
}

/// Waits for the pieces that the other ranks send to slot `index` of their shares, empties the slots, and gives them in
/// `got`, where this rank's own stays. False: one did not come before the deadline.
template <int ranks>
__device__ inline bool receive(const PeerRank& peers, std::uint32_t round, bool of_sums, std::uint32_t index,
                               uint4 (&got)[ranks]) {
  uint4* const slots = staging(peers, static_cast<int>(peers.rank), round, of_sums) + index;
  std::uint64_t begun = 0;
  for (unsigned looks = 1;; ++looks) {
    int missing = -1;
#pragma unroll
    for (int source = 0; source < ranks; ++source) {
      if (source != static_cast<int>(peers.rank)) got[source] = look(slots + share_of<ranks>(source));
    }
#pragma unroll
    for (int source = 0; source < ranks; ++source) {
      if (source != static_cast<int>(peers.rank) && !has_come(got[source])) missing = source;
    }
    if (missing < 0) break;
    if (looks % looks_between_clocks != 0) continue;
    const std::uint64_t now = nanoseconds();
    if (begun == 0) begun = now;
    if (now - begun > peers.deadline_ns) {
      give_up(peers, round, missing);
      return false;
    }
  }
#pragma unroll
  for (int source = 0; source < ranks; ++source) {
    if (source != static_cast<int>(peers.rank)) empty(slots + share_of<ranks>(source));
  }
  return true;
}

/// The same piece to every other rank.
template <int ranks>
__device__ inline void send_to_all(const PeerRank& peers, std::uint32_t round, bool of_sums, std::uint32_t index,
                                   const uint4& value) {
#pragma unroll
  for (int step = 1; step < ranks; ++step) {
    const int to = (static_cast<int>(peers.rank) + step) % ranks;
    send(staging(peers, to, round, of_sums) + share_of<ranks>(static_cast<int>(peers.rank)) + index, value);
  }
}

/// From rank 0 up, rounded once.
template <int ranks>
__device__ inline uint4 sum_of(const uint4 (&parts)[ranks]) {
  Eight sum = unpack(parts[0]);
#pragma unroll
  for (int source = 1; source < ranks; ++source) {
    const Eight part = unpack(parts[source]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] += part.value[i];
  }
  return pack(sum);
}

}  // namespace penstock::kernels::cuda::device
