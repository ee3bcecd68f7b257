// The sum over the GPUs of a group, alone or with the residual and the RMS norm that follow it. All ranks queue the
// same operations with the same sizes in the same order; a thread a rank, or one for all. Usable in graphs. Every rank
// gets the same bits: values are added as float from rank 0 up and rounded to bf16 once, whatever the kind. Any thread;
// queues work on a stream of the rank's GPU, which must be the current one. A rank that is missing ends the kernel at
// the group's deadline with the result unspecified: ask PeerGroup::check() before using it.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/peer_group.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

enum class AllReduceKind : std::uint8_t {
  one_shot,  // every rank sends everything to every other and adds it up itself: one way, ranks - 1 times the bytes
  two_shot,  // every rank adds up its part and sends the sums: two ways, 2 (ranks - 1) / ranks times the bytes
};
struct AllReduceConfig {
  AllReduceKind kind = AllReduceKind::one_shot;
  std::uint32_t threads = 128;  // a block; a multiple of 32, at most 1,024
};

/// y = sum over ranks of their x.
struct AllReduce {
  PeerRank peers;
  const Bf16* x = nullptr;   // [values], dense
  Bf16* y = nullptr;         // [values], dense; may be x
  std::uint64_t values = 0;  // any; 0: nothing to do. One-shot: at most 2 Mi values / ranks
};
/// What measured best on two H200; for more GPUs by the bytes that each sends.
AllReduceConfig choose_all_reduce(std::uint32_t ranks, std::uint64_t values);
Result<void> all_reduce(const AllReduce& work, const AllReduceConfig& config, Start start, Stream stream);

/// norm.x = sum over ranks of their norm.x, not stored, then rms_norm() with it: the same bits as one after the other.
/// norm.x is needed and y must not be x. One kernel for few tokens; else two, with the sum in y between them.
struct AllReduceNorm {
  PeerRank peers;
  RmsNorm norm;
};
bool is_fused(const AllReduceNorm& work);
Result<void> all_reduce_norm(const AllReduceNorm& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
