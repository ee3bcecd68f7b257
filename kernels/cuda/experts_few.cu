// Experts of few tokens, bound by reading the weights of those that were chosen: one kernel of a block for each
// multiprocessor, all of them there at once, whose blocks wait twice for all others. First a block has the logits of
// one expert; when all logits are there every block chooses by itself. From then on weights are read without a pause:
// teams of four warps share the chunks of a tile, each warp with a ring of its own that runs on from tile to tile, and
// from the tiles of eight gate rows with their eight up rows into those of 16 rows of down projections while the last
// of the former are multiplied. A block has its 16 rows of down projections for every expert: so it has all that a
// token's outputs there are added up of, keeps a sum for each choice and adds those in order of ranks.
//
// Waiting for others is safe since the next kernel starts when all blocks of this one have said so, which none does
// before it has found all of them there. Bytes in flight: 96 KB a multiprocessor, where the ring of the next product
// fits beside; 16 warps, since a chunk takes a warp about 600 cycles and eight of them reached 80 % of the read rate.
#include "kernels/cuda/experts_items.cuh"
#include "kernels/cuda/experts_launch.hpp"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace penstock::kernels::cuda {
namespace device {
namespace {

/// What a warp fetches: its chunks of its team's tiles, one after the other.
class FewStream {
 public:
  __device__ FewStream(const ExpertArguments& a, const FewShared& shared)
      : a_(a),
        items_(shared.items),
        ring_(shared.rings + threadIdx.x / warp_lanes * FewRing::bytes),
        warp_(threadIdx.x / warp_lanes),
        item_count_(shared.counts[0]),
        gate_tiles_((a.sizes.ffn + 7) / 8),
        gate_unit_(team() * gridDim.x + blockIdx.x),
        down_tile_(blockIdx.x),
        down_item_(team()) {
    find_tile();
#pragma unroll
    for (int stage = 0; stage < few_stages; ++stage) fetch(stage);
  }
  __device__ int team() const { return warp_ / team_warps; }
  __device__ int member() const { return warp_ % team_warps; }
  __device__ int item_count() const { return item_count_; }
  __device__ int gate_tiles() const { return gate_tiles_; }
  __device__ int gate_units() const { return item_count_ * gate_tiles_; }
  __device__ int down_tiles() const { return (a_.sizes.hidden + tile_rows - 1) / tile_rows; }

  /// sums = the product of the next tile's chunks of this warp with `row`, which may be null.
  __device__ void multiply(const std::uint16_t* row, int columns, float (&sums)[1][4]) {
    const int chunks = (columns + expert_chunk - 1) / expert_chunk;
    uint4 next[2][1];
    load_token(next[0][0], next[1][0], row, member() * expert_chunk, columns);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][i] = 0;
    for (int chunk = member(); chunk < chunks; chunk += team_warps) {
      const uint4 x[2][1] = {{next[0][0]}, {next[1][0]}};
      load_token(next[0][0], next[1][0], row, (chunk + team_warps) * expert_chunk, columns);
      wait_copies<few_stages - 1>();
      __syncwarp();
      ring_.multiply(stage_, x, sums);
      __syncwarp();  // all lanes have read the stage
      fetch(stage_);
      stage_ = stage_ + 1 == few_stages ? 0 : stage_ + 1;
    }
  }

 private:
  __device__ void fetch(int stage) {
    if (columns_ > 0) {
      ring_.fetch(stage, rows_, columns_, chunk_ * expert_chunk);
      chunk_ += team_warps;
      if (chunk_ * expert_chunk >= columns_) {
        if (is_gate_) gate_unit_ += teams * gridDim.x;
        if (!is_gate_) down_item_ += teams;
        find_tile();
      }
    }
    commit_copies();
  }
  /// Columns are 0 if there is no more. A warp may have no chunk in short rows.
  __device__ void find_tile() {
    const int hidden = a_.sizes.hidden, ffn = a_.sizes.ffn;
    chunk_ = member();
    is_gate_ = gate_unit_ < gate_units() && chunk_ * expert_chunk < hidden;
    if (is_gate_) {
      const int output = gate_unit_ % gate_tiles_ * 8;
      rows_.low = a_.gate_up + (std::int64_t{2} * ffn * items_[gate_unit_ / gate_tiles_].expert + output) * hidden;
      rows_.high = rows_.low + static_cast<std::int64_t>(ffn) * hidden;
      rows_.low_rows = rows_.high_rows = ffn - output;
      columns_ = hidden;
      return;
    }
    if (down_item_ >= item_count_) {
      down_item_ = team();
      down_tile_ += gridDim.x;
    }
    if (down_tile_ >= down_tiles() || team() >= item_count_ || chunk_ * expert_chunk >= ffn) {
      columns_ = 0;
      // Its last weights have been asked for; the first warp has as many as any other.
      if (warp_ == 0) let_successor_start();
      return;
    }
    const int row = down_tile_ * tile_rows;
    rows_.low = a_.down + (static_cast<std::int64_t>(hidden) * items_[down_item_].expert + row) * ffn;
    rows_.high = rows_.low + std::int64_t{8} * ffn;
    rows_.low_rows = hidden - row;
    rows_.high_rows = hidden - row - 8;
    columns_ = ffn;
  }

  const ExpertArguments& a_;
  const FewItem* items_;
  FewRing ring_;
  int warp_, item_count_, gate_tiles_, gate_unit_, down_tile_, down_item_;
  int columns_ = 0, chunk_ = 0, stage_ = 0;
  bool is_gate_ = false;
  TileRows rows_{};
};

/// Adds up what the warps of a team have, in order; for the team's first warp. Sums of one round may still be read
/// while those of the next are written.
__device__ inline void add_team(const FewStream& stream, const FewShared& shared, int& round, float (&sums)[1][4]) {
  const int lane = threadIdx.x % warp_lanes;
  float4* const of_team = shared.team_sums + (round * teams + stream.team()) * team_warps * warp_lanes;
  round ^= 1;
  of_team[stream.member() * warp_lanes + lane] = {sums[0][0], sums[0][1], sums[0][2], sums[0][3]};
  named_sync(1 + stream.team(), team_warps * warp_lanes);
  if (stream.member() > 0) return;
#pragma unroll
  for (int i = 1; i < team_warps; ++i) {
    const float4 other = of_team[i * warp_lanes + lane];
    sums[0][0] += other.x;
    sums[0][1] += other.y;
    sums[0][2] += other.z;
    sums[0][3] += other.w;
  }
}

__device__ inline void activate(const ExpertArguments& a, const FewShared& shared, FewStream& stream, int& round) {
  const int lane = threadIdx.x % warp_lanes, hidden = a.sizes.hidden, ffn = a.sizes.ffn;
  const int first = stream.team() * gridDim.x + blockIdx.x;
  for (int unit = first; unit < stream.gate_units(); unit += teams * gridDim.x) {
    const ItemChoices choices(shared.items[unit / stream.gate_tiles()]);
    const std::uint16_t* const row =
        choices.own < 0 ? nullptr : a.x + static_cast<std::int64_t>(choices.own / a.sizes.chosen) * hidden;
    float sums[1][4];
    stream.multiply(row, hidden, sums);
    add_team(stream, shared, round, sums);
    const int output = unit % stream.gate_tiles() * 8 + lane / 4;
    if (stream.member() > 0 || output >= ffn) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int choice = choices.sums[i];
      if (choice < 0) continue;
      const float scale = shared.scales[choice / a.sizes.chosen];
      const float gate = sums[0][i] * scale, up = sums[0][2 + i] * scale;
      a.activated[static_cast<std::int64_t>(choice) * ffn + output] = to_bf16(silu(gate) * up);
    }
  }
}

/// The sums of all choices for 16 rows of down projections.
__device__ inline void project(const ExpertArguments& a, const FewShared& shared, FewStream& stream, int& round) {
  const int lane = threadIdx.x % warp_lanes, ffn = a.sizes.ffn;
  for (int item = stream.team(); item < stream.item_count(); item += teams) {
    const ItemChoices choices(shared.items[item]);
    const std::uint16_t* const row =
        choices.own < 0 ? nullptr : a.activated + static_cast<std::int64_t>(choices.own) * ffn;
    float sums[1][4];
    stream.multiply(row, ffn, sums);
    add_team(stream, shared, round, sums);
    if (stream.member() > 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (choices.sums[i] < 0) continue;
      float* const to = shared.sums + choices.sums[i] * tile_rows + lane / 4;
      to[0] = sums[0][i];
      to[8] = sums[0][2 + i];
    }
  }
}

/// Whole warps: 16 lanes have the rows of a token.
__device__ inline void store_outputs(const ExpertArguments& a, const FewShared& shared, int tile, int tiles) {
  const int hidden = a.sizes.hidden, chosen = a.sizes.chosen;
  for (int i = threadIdx.x; i < (a.sizes.tokens + 1) / 2 * 2 * tile_rows; i += few_threads) {
    const int token = i / tile_rows, row = tile * tile_rows + i % tile_rows;
    const std::int64_t place = static_cast<std::int64_t>(token) * hidden + row;
    float value = 0;
    if (token < a.sizes.tokens && row < hidden) {
      float sum = 0;
      for (int choice = token * chosen; choice < (token + 1) * chosen; ++choice) {
        sum += shared.weights[choice] * shared.sums[choice * tile_rows + i % tile_rows];
      }
      const std::uint16_t rounded = to_bf16(to_float(a.y[place]) + sum);
      a.y[place] = rounded;
      value = to_float(rounded);
      if (a.gain != nullptr) a.gained[place] = to_bf16(value * to_float(a.gain[row]));
    }
    if (a.gain == nullptr) continue;
    float squares = value * value;
#pragma unroll
    for (int step = tile_rows / 2; step > 0; step /= 2) squares += __shfl_xor_sync(all_lanes, squares, step);
    if (i % tile_rows == 0 && token < a.sizes.tokens) a.squares[token * tiles + tile] = squares;
  }
}

__global__ void __launch_bounds__(few_threads, 1) few_kernel(const ExpertArguments a) {
  extern __shared__ __align__(16) unsigned char memory[];
  const FewShared shared(memory, a.sizes);
  constexpr int line = 64;  // values
  for (int expert = blockIdx.x; expert < a.sizes.experts; expert += gridDim.x) {
    for (int i = threadIdx.x * line; i < a.sizes.hidden; i += few_threads * line) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(a.router + static_cast<std::int64_t>(expert) * a.sizes.hidden + i));
    }
  }
  wait_for_predecessor();
  store_logits(a, shared);
  if (blockIdx.x == 0 && threadIdx.x == 0) a.arrived[1] = 0;  // nobody comes there before all have come here
  wait_for_blocks(a.arrived);
  choose(a, shared);
  if (a.sizes.tokens > 1) make_items(a.sizes, shared);
  FewStream stream(a, shared);
  int round = 0;
  activate(a, shared, stream, round);
  wait_for_blocks(a.arrived + 1);
  if (blockIdx.x == 0 && threadIdx.x == 0) a.arrived[0] = 0;
  const int tiles = stream.down_tiles();
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    project(a, shared, stream, round);
    __syncthreads();
    store_outputs(a, shared, tile, tiles);
    __syncthreads();  // before the next tile's sums are written
  }
}

}  // namespace
}  // namespace device

int start_few(const ExpertArguments& a, bool overlapped, CUstream_st* stream) {
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  const std::size_t bytes = device::FewShared(nullptr, a.sizes).bytes;
  if (error == cudaSuccess) error = allow_shared(device::few_kernel, bytes);
  if (error != cudaSuccess) return error;
  return start_kernel(device::few_kernel,
                      {dim3(static_cast<unsigned>(multiprocessors)), device::few_threads, bytes, 1, overlapped}, stream,
                      a);
}

}  // namespace penstock::kernels::cuda
