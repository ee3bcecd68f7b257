// GPUs of one process that read and write each other's memory: what collective kernels send through. Staging lies on
// every GPU, twice, so that a rank may begin the next operation while another still reads the last; which half is in
// use is counted in GPU memory, so that operations can be replayed in graphs. A rank that does not come within the
// deadline fails the operation, and the group for good: kernels end at once from then on and check() says who was
// missing. Owner: whoever runs the ranks; must outlive all work of all ranks. make() from one thread, check() from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/peer_rank.hpp"

namespace penstock::kernels::cuda {

class PeerGroup {
 public:
  /// Rank i runs on GPU devices[i]; 2, 4 or 8 ranks. Several ranks may share a GPU, for tests. Errors: unsupported if
  /// two GPUs do not reach each other's memory, by their numbers; resource_exhausted; unavailable.
  static Result<PeerGroup> make(std::span<const int> devices, std::chrono::milliseconds deadline);

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }
  int device(std::uint32_t rank) const { return ranks_[rank].device; }
  const PeerRank& rank(std::uint32_t rank) const { return ranks_[rank].view; }
  /// After waiting for the rank's stream. Error: deadline_exceeded, which rank did not come.
  Result<void> check(std::uint32_t rank) const;

 private:
  struct Rank {
    int device = 0;
    PeerRank view;
    DeviceBuffer staging, state;
    PinnedBuffer report;
  };
  std::vector<Rank> ranks_;
  std::chrono::milliseconds deadline_{0};
};

}  // namespace penstock::kernels::cuda
