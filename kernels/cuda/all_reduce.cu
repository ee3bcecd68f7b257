// Sums over GPUs. A thread takes 16 bytes from the first read to the last write and meets only the threads of the same
// index on the other GPUs, so blocks wait for no other block of their own GPU. Bytes over NVLink: see AllReduceKind; up
// to 128 KB all of it is starting, one read, one way over the link (about 0.7 us) and one write.
#include "kernels/cuda/all_reduce_launch.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/peer_memory.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

constexpr unsigned piece_values = 8;

/// Piece `index` of [values], with zeros behind the end.
__device__ inline uint4 load_piece(const std::uint16_t* values, std::uint64_t count, std::uint64_t index) {
  const std::uint64_t first = index * piece_values;
  if (first + piece_values <= count) return reinterpret_cast<const uint4*>(values)[index];
  std::uint32_t words[4] = {};
#pragma unroll
  for (unsigned i = 0; i < piece_values; ++i) {
    if (first + i < count) words[i / 2] |= std::uint32_t{values[first + i]} << (16 * (i % 2));
  }
  return {words[0], words[1], words[2], words[3]};
}
__device__ inline void store_piece(std::uint16_t* values, std::uint64_t count, std::uint64_t index,
                                   const uint4& piece) {
  const std::uint64_t first = index * piece_values;
  if (first + piece_values <= count) {
    reinterpret_cast<uint4*>(values)[index] = piece;
    return;
  }
  const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (unsigned i = 0; i < piece_values; ++i) {
    if (first + i < count) values[first + i] = static_cast<std::uint16_t>(words[i / 2] >> (16 * (i % 2)));
  }
}

/// The own piece where receive() leaves it; without an index that is known only when running.
template <int ranks>
__device__ inline void keep_own(uint4 (&parts)[ranks], int rank, const uint4& own) {
#pragma unroll
  for (int source = 0; source < ranks; ++source) {
    if (source == rank) parts[source] = own;
  }
}

template <int ranks>
__global__ void __launch_bounds__(1024) one_shot_kernel(const __grid_constant__ AllReduceArguments a) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  const bool is_used = std::uint64_t{index} * piece_values < a.values;
  wait_for_predecessor();
  let_successor_start();
  const Turn turn = begin_turn(a.peers.state);
  uint4 own{};
  if (is_used) own = load_piece(a.x, a.values, index);
  if (turn.is_broken) return;
  if (is_used) send_to_all<ranks>(a.peers, turn.round, false, index, own);
  const TurnEnd end(a.peers.state, turn, 1);
  uint4 parts[ranks];
  keep_own(parts, static_cast<int>(a.peers.rank), own);
  if (is_used && receive(a.peers, turn.round, false, index, parts)) {
    store_piece(a.y, a.values, index, sum_of(parts));
  }
  end.finish();
}

template <int ranks>
__global__ void __launch_bounds__(1024) two_shot_kernel(const __grid_constant__ AllReduceArguments a) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  const int rank = static_cast<int>(a.peers.rank);
  wait_for_predecessor();
  let_successor_start();
  const Turn turn = begin_turn(a.peers.state);
  if (turn.is_broken) return;
  TurnEnd(a.peers.state, turn, a.rounds).finish();
  if (index >= a.part) return;
  for (std::uint32_t i = 0; i < a.rounds; ++i) {
    const std::uint32_t round = turn.round + i;
    // This thread's piece of rank r's part is first + r * part.
    const std::uint64_t first = std::uint64_t{i} * ranks * a.part + index;
    if (i > 0) fence_of_system();
#pragma unroll
    for (int step = 1; step < ranks; ++step) {
      const int to = (rank + step) % ranks;
      const uint4 theirs = load_piece(a.x, a.values, first + std::uint64_t{a.part} * to);
      send(staging(a.peers, to, round, false) + share_of<ranks>(rank) + index, theirs);
    }
    uint4 parts[ranks];
    keep_own(parts, rank, load_piece(a.x, a.values, first + std::uint64_t{a.part} * rank));
    if (!receive(a.peers, round, false, index, parts)) return;
    const uint4 sum = sum_of(parts);
    send_to_all<ranks>(a.peers, round, true, index, sum);
    keep_own(parts, rank, sum);
    if (!receive(a.peers, round, true, index, parts)) return;
#pragma unroll
    for (int owner = 0; owner < ranks; ++owner) {
      store_piece(a.y, a.values, first + std::uint64_t{a.part} * owner, parts[owner]);
    }
  }
}

/// rms_norm_kernel() with x from all ranks: the same order of every sum, so the same bits. `pieces_max` a thread.
template <int ranks, int pieces_max>
__global__ void __launch_bounds__(1024)
    all_reduce_norm_kernel(const __grid_constant__ PeerRank peers, const __grid_constant__ NormArguments a) {
  const int pieces = a.columns / 8;
  const std::uint32_t row = blockIdx.x * pieces;
  uint4* const residual = reinterpret_cast<uint4*>(a.residual) + row;
  uint4 scale[pieces_max], own[pieces_max], before[pieces_max];
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) scale[i] = reinterpret_cast<const uint4*>(a.weight)[piece];
  }
  wait_for_predecessor();
  let_successor_start();
  const Turn turn = begin_turn(peers.state);
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) own[i] = (reinterpret_cast<const uint4*>(a.x) + row)[piece];
    if (piece < pieces) before[i] = residual[piece];
  }
  if (turn.is_broken) return;
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece < pieces) send_to_all<ranks>(peers, turn.round, false, row + piece, own[i]);
  }
  const TurnEnd end(peers.state, turn, 1);
  Eight values[pieces_max];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    uint4 parts[ranks];
    keep_own(parts, static_cast<int>(peers.rank), own[i]);
    if (!receive(peers, turn.round, false, row + piece, parts)) return;
    values[i] = unpack(before[i]);
    const Eight added = unpack(sum_of(parts));
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].value[j] += added.value[j];
    const uint4 rounded = pack(values[i]);
    residual[piece] = rounded;
    values[i] = unpack(rounded);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[i].value[j] * values[i].value[j];
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(a.columns) + a.epsilon);
#pragma unroll
  for (int i = 0; i < pieces_max; ++i) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    const Eight w = unpack(scale[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].value[j] *= inverse * w.value[j];
    (reinterpret_cast<uint4*>(a.y) + row)[piece] = pack(values[i]);
  }
  end.finish();
}

/// kernel(Count<ranks>), for the ranks that there are kernels for.
template <int value>
struct Count {
  static constexpr int ranks = value;
};
template <class Kernel>
int for_ranks(std::uint32_t ranks, const Kernel& kernel) {
  switch (ranks) {
    case 2:
      return kernel(Count<2>());
    case 4:
      return kernel(Count<4>());
    case 8:
      return kernel(Count<8>());
  }
  return cudaErrorInvalidValue;
}

unsigned blocks_for(std::uint64_t pieces, unsigned threads) {
  return static_cast<unsigned>((pieces + threads - 1) / threads);
}

template <class Kernel>
int load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

}  // namespace
}  // namespace device

int start_one_shot(const AllReduceArguments& a, unsigned threads, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for((a.values + device::piece_values - 1) / device::piece_values, threads);
  return device::for_ranks(a.peers.ranks, [&](auto count) {
    return start_kernel(device::one_shot_kernel<count.ranks>, {dim3(blocks), threads, 0, 1, overlapped}, stream, a);
  });
}

int start_two_shot(const AllReduceArguments& a, unsigned threads, bool overlapped, CUstream_st* stream) {
  const unsigned blocks = device::blocks_for(a.part, threads);
  return device::for_ranks(a.peers.ranks, [&](auto count) {
    return start_kernel(device::two_shot_kernel<count.ranks>, {dim3(blocks), threads, 0, 1, overlapped}, stream, a);
  });
}

int start_all_reduce_norm(const PeerRank& peers, const NormArguments& a, bool overlapped, CUstream_st* stream) {
  const unsigned threads = norm_threads(a);
  const dim3 blocks(static_cast<unsigned>(a.tokens));
  return device::for_ranks(peers.ranks, [&](auto count) {
    const LaunchShape shape{blocks, threads, 0, 1, overlapped};
    if (a.columns <= static_cast<int>(threads * device::piece_values)) {
      return start_kernel(device::all_reduce_norm_kernel<count.ranks, 1>, shape, stream, peers, a);
    }
    return start_kernel(device::all_reduce_norm_kernel<count.ranks, 4>, shape, stream, peers, a);
  });
}

int load_all_reduce_kernels() {
  for (const std::uint32_t ranks : {2u, 4u, 8u}) {
    const int error = device::for_ranks(ranks, [](auto count) {
      int code = device::load(device::one_shot_kernel<count.ranks>);
      if (code == 0) code = device::load(device::two_shot_kernel<count.ranks>);
      if (code == 0) code = device::load(device::all_reduce_norm_kernel<count.ranks, 1>);
      return code == 0 ? device::load(device::all_reduce_norm_kernel<count.ranks, 4>) : code;
    });
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace penstock::kernels::cuda
