#include "kernels/cuda/all_reduce.hpp"

#include <algorithm>

#include "kernels/cuda/all_reduce_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::uint64_t piece_values = 8;
// Sent by each rank. Measured with two GPUs, where one shot is never slower; with more, an estimate by bytes.
constexpr std::uint64_t one_shot_bytes_max = 1u << 20;
constexpr std::uint64_t fused_bytes_max = 128u << 10;

std::uint64_t pieces_of(std::uint64_t values) {
  return (values + piece_values - 1) / piece_values;
}

Result<void> check_peers(const PeerRank& peers, std::string_view name) {
  if (peers.ranks != 2 && peers.ranks != 4 && peers.ranks != 8) return bad_shape(name, "peers must be 2, 4 or 8 ranks");
  if (peers.rank >= peers.ranks) return bad_shape(name, "rank must be one of the ranks");
  return {};
}

}  // namespace

AllReduceConfig choose_all_reduce(std::uint32_t ranks, std::uint64_t values) {
  if (values <= one_shot_bytes_max / 2 / (ranks - 1)) return {AllReduceKind::one_shot, 128};
  return {AllReduceKind::two_shot, 256};
}

Result<void> all_reduce(const AllReduce& work, const AllReduceConfig& config, Start start, Stream stream) {
  constexpr std::string_view name = "all_reduce";
  PENSTOCK_TRY_VOID(check_peers(work.peers, name));
  if (config.threads == 0 || config.threads % 32 != 0 || config.threads > 1024) {
    return bad_shape(name, "threads must be a multiple of 32, at most 1024");
  }
  if (work.values == 0) return {};
  if (work.x == nullptr || work.y == nullptr) return bad_shape(name, "x and y are needed");
  const std::uint32_t ranks = work.peers.ranks;
  const std::uint64_t pieces = pieces_of(work.values), part_max = peer_round_pieces / ranks;
  AllReduceArguments arguments{work.peers, work.x, work.y, work.values, 1, 0};
  const bool overlapped = start == Start::overlapped;
  switch (config.kind) {
    case AllReduceKind::one_shot:
      if (pieces > part_max) return bad_shape(name, "values are too many for one shot");
      return check_launch(start_one_shot(arguments, config.threads, overlapped, stream), name);
    case AllReduceKind::two_shot:
      break;
  }
  const std::uint64_t rounds = (pieces + peer_round_pieces - 1) / peer_round_pieces;
  if (rounds > 0x7fffffffu) return bad_shape(name, "too many values");
  arguments.rounds = static_cast<std::uint32_t>(rounds);
  arguments.part = static_cast<std::uint32_t>((pieces + rounds * ranks - 1) / (rounds * ranks));
  return check_launch(start_two_shot(arguments, config.threads, overlapped, stream), name);
}

bool is_fused(const AllReduceNorm& work) {
  return 2 * std::uint64_t{work.norm.tokens} * work.norm.columns <= fused_bytes_max;
}

Result<void> all_reduce_norm(const AllReduceNorm& work, Start start, Stream stream) {
  constexpr std::string_view name = "all_reduce_norm";
  const RmsNorm& norm = work.norm;
  PENSTOCK_TRY_VOID(check_peers(work.peers, name));
  PENSTOCK_TRY_VOID(check_norm(norm, name));
  if (norm.x == nullptr || norm.x == norm.y) return bad_shape(name, "x is needed, and must not be y");
  if (norm.tokens == 0) return {};
  if (is_fused(work)) {
    const NormArguments arguments = arguments_of(norm);
    return check_launch(start_all_reduce_norm(work.peers, arguments, start == Start::overlapped, stream), name);
  }
  const AllReduce sum{work.peers, norm.x, norm.y, std::uint64_t{norm.tokens} * norm.columns};
  PENSTOCK_TRY_VOID(all_reduce(sum, choose_all_reduce(work.peers.ranks, sum.values), start, stream));
  RmsNorm rest = norm;
  rest.x = norm.y;
  return rms_norm(rest, start, stream);
}

}  // namespace penstock::kernels::cuda
