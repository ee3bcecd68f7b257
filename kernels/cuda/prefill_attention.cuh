// The device side of prefill_attention.hpp. A block takes 128 rows of queries at a time, which are tokens times the
// heads that share a KV head, and walks over their keys 128 at a time from the last to the first. One warp fetches with
// box copies, which put a KV block of 16 tokens where the matrix units expect it; two groups of four warps have 64
// rows each. A group starts the product of the next keys, then that of the last probabilities with their values, and
// works out the next probabilities while both run; the two groups take turns at starting products, so that one's
// exponentials fall into the other's products.
//
// Blocks stay and take one tile after the other from a counter, the long ones first, so that all end at about the same
// time; a second warp looks the next tile up, and its queries and first keys are fetched while this one ends.
//
// Few new tokens after many cached ones would leave most blocks without work: plan_prefill() splits their keys, and
// merge_prefill_kernel puts the parts together in their order.
//
// Shared memory: two stages of queries 64 KB, of keys and of values 128 KB (head_dim 128): one block a multiprocessor.
// Of each 128 x 128 tile of scores 8.4 MFLOP are products (2,050 cycles) and 16,384 exponentials (1,024 cycles).
#pragma once

#include <cmath>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prefill_fetch.cuh"
#include "kernels/cuda/prefill_launch.hpp"
#include "kernels/cuda/prefill_merge.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace penstock::kernels::cuda::device {

/// Two rows of scores of a lane: what has been seen of them so far. Maxima are of scores before scaling.
struct SoftmaxRows {
  float maximum[2] = {-INFINITY, -INFINITY};
  float weight[2] = {};  // of this lane's keys
};

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Scores of keys after a row's own token become minus infinity.
__device__ inline void hide_later_keys(float (&scores)[64], int first_key, const int (&position)[2]) {
  const int key = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    if (key + i / 4 * 8 + i % 2 > position[i / 2 % 2]) scores[i] = -INFINITY;
  }
}

/// Scores become weights relative to the largest so far; `decay` is what earlier sums are to be multiplied with.
__device__ inline void weigh(float (&scores)[64], SoftmaxRows& rows, float (&decay)[2], float scale) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = rows.maximum[row];
#pragma unroll
    for (int i = 0; i < 32; ++i) largest = fmaxf(largest, scores[i / 2 * 4 + row * 2 + i % 2]);
    largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
    const float base = largest == -INFINITY ? 0.0f : largest * scale;
    decay[row] = exp2_fast(rows.maximum[row] * scale - base);
    rows.maximum[row] = largest;
    float added = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float& score = scores[i / 2 * 4 + row * 2 + i % 2];
      score = exp2_fast(score * scale - base);
      added += score;
    }
    rows.weight[row] = rows.weight[row] * decay[row] + added;
  }
}

__device__ inline void pack_weights(std::uint32_t (&packed)[32], const float (&weights)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) packed[i] = pack(weights[2 * i], weights[2 * i + 1]);
}

template <int head_dim>
__device__ inline void start_scores(float (&scores)[64], std::uint32_t q, std::uint32_t keys) {
#pragma unroll
  for (int step = 0; step < head_dim / 16; ++step) {
    const int offset = step / 4 * half_bytes + step % 4 * 32;
    multiply(scores, operand(q + offset, atom_bytes, 0), operand(keys + offset, atom_bytes, 0), step > 0);
  }
  commit_products();
}

template <int head_dim>
__device__ inline void start_sums(float (&sums)[head_dim / 2], const std::uint32_t (&weights)[32],
                                  std::uint32_t values) {
#pragma unroll
  for (int step = 0; step < prefill_keys / 16; ++step) {
    multiply_add(sums, weights + 4 * step, operand(values + step * 2 * atom_bytes, atom_bytes, half_bytes));
  }
  commit_products();
}

/// Values of tokens that are not there: zero weights do not help against what may be in their place.
template <int head_dim>
__device__ inline void clear_rows(unsigned char* values, int first, int group) {
  const int pieces = (prefill_keys - first) * 8;
  for (int i = threadIdx.x % group_threads; i < pieces * (head_dim / 64); i += group_threads) {
    const int half = i / pieces, piece = i % pieces;
    *reinterpret_cast<uint4*>(values + half * half_bytes + first * 128 + piece * 16) = uint4{};
  }
  publish_to_products();
  named_sync(1 + group, group_threads);
}

/// Brings a warp's 16 rows, which begin at row `first` of the tile, out by way of the place where their queries were,
/// so that whole rows are written at a time.
template <int head_dim>
__device__ inline void write_rows(const PrefillArguments& a, const PrefillItem& item, const float (&sums)[head_dim / 2],
                                  const SoftmaxRows& rows, unsigned char* q, int first) {
  const int lane = threadIdx.x % warp_lanes;
  unsigned char* const own = q + first * 128;
  const auto place = [&](int row, int piece) {
    return own + piece / 8 * half_bytes + row * 128 + (piece % 8 ^ row % 8) * 16;
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float weight = rows.weight[half];
    weight += __shfl_xor_sync(all_lanes, weight, 1);
    weight += __shfl_xor_sync(all_lanes, weight, 2);
    const float inverse = 1 / weight;
#pragma unroll
    for (int i = 0; i < head_dim / 8; ++i) {
      const float* const pair = sums + 4 * i + 2 * half;
      *reinterpret_cast<std::uint32_t*>(place(lane / 4 + half * 8, i) + lane % 4 * 4) =
          pack(pair[0] * inverse, pair[1] * inverse);
    }
  }
  __syncwarp();
  constexpr int row_pieces = head_dim / 8;
#pragma unroll
  for (int i = lane; i < 16 * row_pieces; i += warp_lanes) {
    const int row = i / row_pieces, token = (first + row) / a.group, head = (first + row) % a.group;
    if (token >= item.tokens) continue;
    const std::int64_t to = static_cast<std::int64_t>(item.first_row + token) * a.heads + item.kv_head * a.group + head;
    reinterpret_cast<uint4*>(a.out)[to * row_pieces + i % row_pieces] =
        *reinterpret_cast<const uint4*>(place(row, i % row_pieces));
  }
  publish_to_products();  // the next queries come as a box copy
  __syncwarp();
}

/// A warp's 16 rows as they are, for a merge.
template <int head_dim>
__device__ inline void write_part(const PrefillArguments& a, const PrefillItem& item, const float (&sums)[head_dim / 2],
                                  const SoftmaxRows& rows, int first) {
  const int lane = threadIdx.x % warp_lanes;
  const std::int64_t tile = static_cast<std::int64_t>(item.part) * a.kv_heads + item.kv_head;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float weight = rows.weight[half];
    weight += __shfl_xor_sync(all_lanes, weight, 1);
    weight += __shfl_xor_sync(all_lanes, weight, 2);
    float* const to = a.partial + (tile * prefill_rows + first + half * 8 + lane / 4) * (head_dim + 2);
#pragma unroll
    for (int i = 0; i < head_dim / 8; ++i) {
      *reinterpret_cast<float2*>(to + i * 8 + lane % 4 * 2) = {sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1]};
    }
    if (lane % 4 == 0) *reinterpret_cast<float2*>(to + head_dim) = {rows.maximum[half], weight};
  }
}

/// A group of four warps: 64 rows of every item. `group` is 0 or 1.
template <int head_dim>
__device__ inline void multiply_items(PrefillShared<head_dim>& shared, const PrefillArguments& a, int group) {
  constexpr int turns = 4;  // named barriers turns, turns + 1
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes % 4;
  const int row_in_tile[2] = {group * 64 + warp * 16 + lane / 4, group * 64 + warp * 16 + lane / 4 + 8};
  const auto release = [&](SharedBarrier& barrier) {
    if (lane == 0) barrier.arrive();
  };
  if (group == 1) named_arrive(turns, 2 * group_threads);
  RingPlace<prefill_stages> place;
  RingPlace<q_stages> q_place;
  for (;; q_place.advance()) {
    shared.q_full[q_place.stage].wait(q_place.phase);
    const PrefillItem item = shared.items[q_place.stage];
    if (item.tokens == 0) break;
    const std::uint32_t q = shared_address(shared.q[q_place.stage]) + group * 64 * 128;
    float scores[64], sums[head_dim / 2] = {}, decay[2];
    std::uint32_t weights[32];
    SoftmaxRows rows;
    const int position[2] = {item.position + row_in_tile[0] / a.group, item.position + row_in_tile[1] / a.group};
    const auto weigh_step = [&](int step) {
      const int first_key = step * prefill_keys;
      if (first_key + prefill_keys - 1 > item.position) hide_later_keys(scores, first_key, position);
      weigh(scores, rows, decay, a.scale);
    };
    int step = item.end - 1;
    shared.keys_full[place.stage].wait(place.phase);
    begin_products();
    start_scores<head_dim>(scores, q, shared_address(shared.keys[place.stage]));
    wait_products<0>();
    hold(scores);
    release(shared.keys_empty[place.stage]);
    weigh_step(step);
    pack_weights(weights, scores);
    if (const int valid = item.length - step * prefill_keys; valid < prefill_keys) {
      shared.values_full[place.stage].wait(place.phase);
      clear_rows<head_dim>(shared.values[place.stage], valid, group);
    }
    while (--step >= item.begin) {
      RingPlace<prefill_stages> next = place;
      next.advance();
      shared.keys_full[next.stage].wait(next.phase);
      named_sync(turns + group, 2 * group_threads);
      hold(weights);
      hold(sums);
      begin_products();
      start_scores<head_dim>(scores, q, shared_address(shared.keys[next.stage]));
      shared.values_full[place.stage].wait(place.phase);
      begin_products();
      start_sums<head_dim>(sums, weights, shared_address(shared.values[place.stage]));
      named_arrive(turns + 1 - group, 2 * group_threads);
      wait_products<1>();
      hold(scores);
      release(shared.keys_empty[next.stage]);
      weigh_step(step);
      wait_products<0>();
      hold(sums);
      hold(weights);
      release(shared.values_empty[place.stage]);
#pragma unroll
      for (int i = 0; i < head_dim / 2; ++i) sums[i] *= decay[i / 2 % 2];
      pack_weights(weights, scores);
      place = next;
    }
    shared.values_full[place.stage].wait(place.phase);
    hold(weights);
    hold(sums);
    begin_products();
    start_sums<head_dim>(sums, weights, shared_address(shared.values[place.stage]));
    wait_products<0>();
    hold(sums);
    release(shared.values_empty[place.stage]);
    place.advance();
    const int first = group * 64 + warp * 16;
    if (item.part < 0) {
      write_rows<head_dim>(a, item, sums, rows, shared.q[q_place.stage], first);
    } else {
      write_part<head_dim>(a, item, sums, rows, first);
    }
    release(shared.q_empty[q_place.stage]);
  }
  if (group == 0) named_sync(turns, 2 * group_threads);  // as many as the other has arrived at
}

template <int head_dim>
__global__ void __launch_bounds__(prefill_threads, 1)
    prefill_attention_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap kv_map,
                             const __grid_constant__ PrefillArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char memory[];
  const std::uint32_t begin = shared_address(memory);
  auto& shared = *reinterpret_cast<PrefillShared<head_dim>*>(memory + ((atom_bytes - begin % atom_bytes) % atom_bytes));
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < q_stages; ++stage) {
      shared.item_full[stage].init(1);
      shared.q_full[stage].init(1);
      shared.q_empty[stage].init(multiplying_warps);
    }
    for (int stage = 0; stage < prefill_stages; ++stage) {
      shared.keys_full[stage].init(1);
      shared.values_full[stage].init(1);
      shared.keys_empty[stage].init(multiplying_warps);
      shared.values_empty[stage].init(multiplying_warps);
    }
    publish_barriers();
  }
  __syncthreads();
  wait_for_predecessor();
  let_successor_start();
  const int group = threadIdx.x / group_threads;
  // Together what the block started with, 168 each: more would never come free.
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x < warp_lanes) {
      fetch_items<head_dim>(shared, q_map, kv_map, a);
    } else if (threadIdx.x < 2 * warp_lanes) {
      take_items<head_dim>(shared, a);
    }
  } else {
    take_registers<232>();
    multiply_items<head_dim>(shared, a, group - 1);
  }
#endif
}

template <int head_dim>
cudaError_t start_prefill(PrefillArguments a, unsigned blocks, bool overlapped, cudaStream_t stream) {
  constexpr float log2_e = 1.4426950408889634f;
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<head_dim>) + atom_bytes;
  const auto kernel = prefill_attention_kernel<head_dim>;
  cudaError_t error = check_hopper();
  if (error == cudaSuccess) error = allow_shared(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  a.scale *= log2_e;
  CUtensorMap q_map, kv_map;
  // Of queries: 64 columns of a KV head's heads, for the tokens of a tile. Of the pool: 64 columns of a block's tokens.
  const TensorShape q{a.q, {head_dim, static_cast<std::uint64_t>(a.heads), static_cast<std::uint64_t>(a.rows)}, 3};
  const TensorShape kv{a.pool, {head_dim, static_cast<std::uint64_t>(a.pool_rows), 1}, 2};
  error = map_tensor(q, {64, static_cast<unsigned>(a.group), static_cast<unsigned>(a.tile_tokens)}, q_map);
  if (error == cudaSuccess) error = map_tensor(kv, {64, block_keys, 1}, kv_map);
  if (error != cudaSuccess) return error;
  error = start_kernel(kernel, {dim3(blocks), prefill_threads, shared_bytes, 1, overlapped}, stream, q_map, kv_map, a);
  if (error != cudaSuccess || a.merge_count == 0) return error;
  const dim3 grid(static_cast<unsigned>(a.merge_count), static_cast<unsigned>(a.kv_heads), merge_blocks);
  return start_kernel(merge_prefill_kernel<head_dim>, {grid, merge_threads, 0, 1, true}, stream, a);
}

}  // namespace penstock::kernels::cuda::device
