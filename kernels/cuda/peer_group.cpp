#include "kernels/cuda/peer_group.hpp"

#include <cuda_runtime.h>

#include <atomic>
#include <string>
#include <utility>

#include "kernels/cuda/all_reduce_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

/// Lets the current device, `device`, use the memory of `other`.
Result<void> reach(int device, int other) {
  if (device == other) return {};
  int is_possible = 0;
  PENSTOCK_TRY_VOID(check_launch(cudaDeviceCanAccessPeer(&is_possible, device, other), "peer access"));
  if (is_possible == 0) {
    return make_error(ErrorCode::unsupported, "GPU " + std::to_string(device) + " does not reach the memory of GPU " +
                                                  std::to_string(other) +
                                                  "; ranks of one instance need NVLink or PCIe peer access");
  }
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // or the next launch would report it
    return {};
  }
  return check_launch(error, "peer access");
}

}  // namespace

Result<PeerGroup> PeerGroup::make(std::span<const int> devices, std::chrono::milliseconds deadline) {
  if (devices.size() != 2 && devices.size() != 4 && devices.size() != 8) {
    return make_error(ErrorCode::unsupported,
                      "a group of " + std::to_string(devices.size()) + " GPUs; there are kernels for 2, 4 and 8");
  }
  const OnDevice restore;
  PeerGroup group;
  group.deadline_ = deadline;
  for (const int device : devices) {
    PENSTOCK_TRY_VOID(use_device(device));
    for (const int other : devices) PENSTOCK_TRY_VOID(reach(device, other));
    Rank rank;
    rank.device = device;
    PENSTOCK_TRY(rank.staging, DeviceBuffer::make(peer_staging_bytes));
    PENSTOCK_TRY(rank.state, DeviceBuffer::make(sizeof(PeerState)));
    PENSTOCK_TRY(rank.report, PinnedBuffer::make(sizeof(std::uint64_t)));
    PENSTOCK_TRY(const OwnedStream stream, OwnedStream::make());
    PENSTOCK_TRY_VOID(rank.staging.fill(0xff, stream.get()));
    PENSTOCK_TRY_VOID(rank.state.fill(0, stream.get()));
    // A kernel that is loaded when it is first started may have to wait for one that waits for this rank.
    PENSTOCK_TRY_VOID(check_launch(load_all_reduce_kernels(), "load collective kernels"));
    PENSTOCK_TRY_VOID(stream.wait());
    group.ranks_.push_back(std::move(rank));
  }
  for (std::uint32_t index = 0; index < group.ranks(); ++index) {
    Rank& rank = group.ranks_[index];
    for (std::uint32_t other = 0; other < group.ranks(); ++other) {
      rank.view.staging[other] = group.ranks_[other].staging.data();
    }
    rank.view.state = rank.state.as<PeerState>();
    rank.view.report = rank.report.as<std::uint64_t>();
    rank.view.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(deadline).count());
    rank.view.rank = index;
    rank.view.ranks = group.ranks();
  }
  return group;
}

Result<void> PeerGroup::check(std::uint32_t rank) const {
  const std::uint64_t report = std::atomic_ref(*ranks_[rank].view.report).load(std::memory_order_relaxed);
  if (report == 0) return {};
  return make_error(ErrorCode::deadline_exceeded, "rank " + std::to_string((report & 0xff) - 1) +
                                                      " did not come to round " + std::to_string(report >> 8) +
                                                      " of the collectives of rank " + std::to_string(rank) +
                                                      " within " + std::to_string(deadline_.count()) + " ms");
}

}  // namespace penstock::kernels::cuda
