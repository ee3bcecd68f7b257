// What prefill attention's blocks do besides multiplying: one warp takes tiles and looks up where they are, one fetches
// queries, keys and values into stages of shared memory.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/prefill_launch.hpp"

namespace penstock::kernels::cuda::device {

constexpr int prefill_rows = 128, prefill_keys = 128, prefill_stages = 2, q_stages = 2, prefill_groups = 2;
constexpr int prefill_threads = (1 + prefill_groups) * group_threads;
constexpr int multiplying_warps = prefill_groups * group_threads / warp_lanes;
constexpr int block_keys = 16, tile_blocks = prefill_keys / block_keys;
constexpr int atom_bytes = 1024;                    // eight rows of 128 bytes
constexpr int half_bytes = prefill_keys * 128;      // 64 columns of all rows
constexpr int block_half_bytes = block_keys * 128;  // of a KV block

/// One tile and KV head, and the tiles of keys [begin, end). No tokens: there are no more items.
struct PrefillItem {
  int kv_head, first_row, tokens, position, length, begin, end, part;
  const std::int32_t* table;
  int rows[tile_blocks];  // of the pool: where the KV blocks of the last tile of keys begin
};

template <int head_dim>
struct PrefillShared {
  static constexpr int halves = head_dim / 64, plane_bytes = halves * half_bytes;
  unsigned char q[q_stages][plane_bytes];
  unsigned char keys[prefill_stages][plane_bytes];
  unsigned char values[prefill_stages][plane_bytes];
  PrefillItem items[q_stages];
  SharedBarrier item_full[q_stages], q_full[q_stages], q_empty[q_stages], keys_full[prefill_stages],
      keys_empty[prefill_stages], values_full[prefill_stages], values_empty[prefill_stages];
};

__device__ inline PrefillItem find_item(const PrefillArguments& a, int index) {
  PrefillItem item{};
  if (index >= a.tile_count * a.kv_heads) return item;
  // All tiles of some heads, then those of the next heads.
  const int heads_items = a.tile_count * a.heads_at_once, in_heads = index % heads_items;
  const int tile = in_heads / a.heads_at_once;
  item.kv_head = index / heads_items * a.heads_at_once + in_heads % a.heads_at_once;
  const std::int32_t* const entry = a.tiles + 5 * static_cast<std::int64_t>(tile);
  const int sequence = entry[0], first = entry[1];
  item.begin = entry[2];
  item.end = entry[3];
  item.part = entry[4];
  const int rows = a.sequences[4 * sequence + 1];
  item.length = a.sequences[4 * sequence + 2];
  item.first_row = a.sequences[4 * sequence] + first;
  item.tokens = min(a.tile_tokens, rows - first);
  item.position = item.length - rows + first;
  item.table = a.tables + static_cast<std::int64_t>(a.sequences[4 * sequence + 3]) * a.table_stride;
  return item;
}

/// Where KV block `lane` of a tile of keys begins in the pool; outside of it, which reads as zeros, if there is none.
__device__ inline int find_block(const PrefillArguments& a, const PrefillItem& item, int step, int lane) {
  const int block = step * tile_blocks + lane;
  const bool exists = step >= 0 && lane < tile_blocks && block < a.table_stride && block * block_keys < item.length;
  const int entry = exists ? item.table[block] : -1;
  if (entry < 0 || entry >= a.blocks) return static_cast<int>(a.pool_rows);
  return ((entry * a.kv_heads + item.kv_head) * a.layers + a.layer) * 2 * block_keys;
}

/// A stage and the phase of its barriers, going round the stages.
template <int stages>
struct RingPlace {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// One warp: takes items, the first one by the block's place and then whatever nobody has taken, and looks up where
/// they are while the one before is worked on.
template <int head_dim>
__device__ inline void take_items(PrefillShared<head_dim>& shared, const PrefillArguments& a) {
  const int lane = threadIdx.x % warp_lanes;
  RingPlace<q_stages> place;
  for (bool is_first = true;; is_first = false, place.advance()) {
    shared.q_empty[place.stage].wait(place.phase ^ 1);
    int index = blockIdx.x;
    if (!is_first) {
      if (lane == 0) index = gridDim.x + atomicAdd(a.counters, 1u);
      index = __shfl_sync(all_lanes, index, 0);
    }
    const PrefillItem item = find_item(a, index);
    const int row = find_block(a, item, item.end - 1, lane);
    if (lane == 0) shared.items[place.stage] = item;
    __syncwarp();
    if (lane < tile_blocks) shared.items[place.stage].rows[lane] = row;
    __syncwarp();
    if (lane == 0) shared.item_full[place.stage].arrive();
    if (item.tokens == 0) break;
  }
  if (lane != 0) return;
  // The last block to come here leaves the counters as it found them.
  __threadfence();
  if (atomicAdd(a.counters + 1, 1u) == gridDim.x - 1) a.counters[0] = a.counters[1] = 0;
}

/// One warp: a lane for each KV block of a tile of keys.
template <int head_dim>
__device__ inline void fetch_items(PrefillShared<head_dim>& shared, const CUtensorMap& q_map, const CUtensorMap& kv_map,
                                   const PrefillArguments& a) {
  using Shared = PrefillShared<head_dim>;
  const int lane = threadIdx.x % warp_lanes;
  const int q_bytes = Shared::halves * 128 * a.group * a.tile_tokens;
  RingPlace<prefill_stages> place;
  RingPlace<q_stages> q_place;
  for (;; q_place.advance()) {
    shared.item_full[q_place.stage].wait(q_place.phase);
    const PrefillItem item = shared.items[q_place.stage];
    SharedBarrier& q_full = shared.q_full[q_place.stage];
    if (lane == 0) {
      q_full.arrive_expecting(item.tokens > 0 ? q_bytes : 0);
      for (int half = 0; item.tokens > 0 && half < Shared::halves; ++half) {
        copy_box(shared.q[q_place.stage] + half * half_bytes, q_map, q_full, half * 64, item.kv_head * a.group,
                 item.first_row);
      }
    }
    if (item.tokens == 0) return;
    const int used_blocks = (item.length + block_keys - 1) / block_keys;
    int row = shared.items[q_place.stage].rows[lane % tile_blocks];
    for (int step = item.end - 1; step >= item.begin; --step) {
      const int blocks = min(tile_blocks, used_blocks - step * tile_blocks);
      const int next_row = find_block(a, item, step - 1, lane);
      const auto fetch = [&](unsigned char* to, SharedBarrier& full, SharedBarrier& empty, int from) {
        empty.wait(place.phase ^ 1);
        if (lane == 0) full.arrive_expecting(blocks * block_keys * head_dim * 2);
        __syncwarp();
        if (lane < blocks) {
#pragma unroll
          for (int half = 0; half < Shared::halves; ++half) {
            copy_box(to + half * half_bytes + lane * block_half_bytes, kv_map, full, half * 64, from);
          }
        }
      };
      fetch(shared.keys[place.stage], shared.keys_full[place.stage], shared.keys_empty[place.stage], row);
      // Outside stays outside.
      const int values_row = row + block_keys;
      fetch(shared.values[place.stage], shared.values_full[place.stage], shared.values_empty[place.stage], values_row);
      place.advance();
      row = next_row;
    }
  }
}

}  // namespace penstock::kernels::cuda::device
