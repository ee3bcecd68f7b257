// Between all_reduce.cpp and all_reduce.cu. Internal.
#pragma once

#include <cstdint>

#include "kernels/cuda/norm_launch.hpp"
#include "kernels/cuda/peer_rank.hpp"

struct CUstream_st;

namespace penstock::kernels::cuda {

struct AllReduceArguments {
  PeerRank peers;
  const std::uint16_t* x;
  std::uint16_t* y;
  std::uint64_t values;
  // Two-shot: rounds of the same size, whatever is behind `values`; a rank adds up `part` pieces in each.
  std::uint32_t rounds, part;
};
/// Each returns a cudaError_t.
int start_one_shot(const AllReduceArguments& arguments, unsigned threads, bool overlapped, CUstream_st* stream);
int start_two_shot(const AllReduceArguments& arguments, unsigned threads, bool overlapped, CUstream_st* stream);
int start_all_reduce_norm(const PeerRank& peers, const NormArguments& arguments, bool overlapped, CUstream_st* stream);
/// All of them on the current device.
int load_all_reduce_kernels();

}  // namespace penstock::kernels::cuda
