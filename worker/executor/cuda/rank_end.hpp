// What a GPU that computes a share of a model has of the others: the memory of all for sums on the device, and a place
// where the ranks' threads meet. Plain; what it points to outlives the executor. A GPU that has the whole model has
// none.
#pragma once

#include "kernels/cuda/peer_rank.hpp"
#include "worker/comm/collective.hpp"

namespace penstock::worker {

struct RankEnd {
  const kernels::cuda::PeerRank* peers = nullptr;
  Collective* threads = nullptr;
};

}  // namespace penstock::worker
