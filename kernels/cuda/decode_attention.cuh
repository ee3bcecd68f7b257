// The device side of decode_attention.hpp. A thread block has one sequence, one KV head and one split of its KV blocks;
// its warps take KV blocks of 16 tokens in turn, each with its own running softmax, and are merged at the end. The
// heads that share a KV head are the 16 rows of the matrix instruction. Keys and values of a block are two runs, copied
// as such, 512 bytes an instruction, with 16-byte pieces swapped within a row so that reading meets no bank twice; the
// head's columns are taken in the order in which lanes read keys, for keys and queries alike. Values are needed across,
// so they are read with ldmatrix.
// Splits are merged in their order: those of a cluster through shared memory, more by the block that finishes last.
//
// Bytes in flight: warps * stages * 8 KB (head_dim 128) = 96 KB a block, two blocks a multiprocessor.
#pragma once

#include <cmath>

#include "kernels/cuda/attention_launch.hpp"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rope.cuh"

namespace penstock::kernels::cuda::device {

constexpr int attention_warps = 4, attention_stages = 3;
constexpr int kv_tokens = 16, group_rows = 16, splits_max = 256;
constexpr int cluster_blocks_max = 16;
constexpr float log2_e = 1.4426950408889634f;

template <int head_dim>
struct AttentionTile {
  static constexpr int parts = head_dim / 32;  // of 32 columns, one 16-byte piece a lane and row
  static constexpr int plane_bytes = kv_tokens * head_dim * 2;
  static constexpr int stage_bytes = 2 * plane_bytes;
  static constexpr int row_pieces = head_dim / 8;  // of 16 bytes
  static constexpr int copies = plane_bytes / (warp_lanes * 16);
  static constexpr int column_tiles = head_dim / 8;  // of the output
};

/// One warp's softmax over the KV blocks it has seen: rows g and g + 8 of the group.
template <int head_dim>
struct RunningSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};  // of scores times log2(e)
  float weight[2] = {};
  float sums[head_dim / 8][4] = {};
};

/// What warps, or the blocks of a cluster, have found: sums of values, the maximum that they are relative to, and the
/// sum of weights. Shares memory with the rings.
template <int head_dim, int parts>
struct Partials {
  float sums[parts][group_rows][head_dim];
  float maximum[parts][group_rows];
  float weight[parts][group_rows];
};
template <int head_dim>
struct Results {
  Partials<head_dim, attention_warps> of_warps;
  Partials<head_dim, 1> of_block;
};

__device__ inline void load_transposed(std::uint32_t (&out)[4], const void* shared) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(from)
               : "memory");
}

/// exp2 of the distance to a maximum; nothing seen yet weighs nothing.
__device__ inline float weight_of(float maximum, float new_maximum) {
  return maximum == -INFINITY ? 0.0f : exp2f(maximum - new_maximum);
}

/// Keys and values of one block into a stage. Tokens at `valid` and beyond become zeros: what is there may be anything.
template <int head_dim>
__device__ inline void fetch_block(unsigned char* stage, const std::uint16_t* keys, int valid, int lane) {
  using Tile = AttentionTile<head_dim>;
  const std::uint16_t* values = keys + kv_tokens * head_dim;
#pragma unroll
  for (int i = 0; i < Tile::copies; ++i) {
    const int piece = i * warp_lanes + lane, token = piece / Tile::row_pieces, column = piece % Tile::row_pieces;
    unsigned char* to = stage + token * Tile::row_pieces * 16;
    copy_async(to + (column ^ (token % 2 * 4)) * 16, keys + piece * 8, token < valid);
    copy_async(to + Tile::plane_bytes + (column ^ (token % 8)) * 16, values + piece * 8, token < valid);
  }
}

template <int head_dim>
__device__ inline void attend_block(RunningSoftmax<head_dim>& state, const unsigned char* stage,
                                    const uint4 (&q)[head_dim / 32][2], int valid, float scale, int lane) {
  using Tile = AttentionTile<head_dim>;
  const int group = lane / 4, quad = lane % 4;
  float scores[2][4] = {};  // tokens 0..7 and 8..15
#pragma unroll
  for (int part = 0; part < Tile::parts; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + group, piece = (part * 4 + quad) ^ (group % 2 * 4);
      const uint4 k = *reinterpret_cast<const uint4*>(stage + (row * Tile::row_pieces + piece) * 16);
      multiply_add(scores[half], q[part][0].x, q[part][1].x, q[part][0].y, q[part][1].y, k.x, k.y);
      multiply_add(scores[half], q[part][0].z, q[part][1].z, q[part][0].w, q[part][1].w, k.z, k.w);
    }
  }
  float largest[2] = {state.maximum[0], state.maximum[1]};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = half * 8 + quad * 2 + i % 2;
      scores[half][i] = token < valid ? scores[half][i] * scale : -INFINITY;
      largest[i / 2] = fmaxf(largest[i / 2], scores[half][i]);
    }
  }
  float decay[2], added[2] = {};
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(all_lanes, largest[row], 1));
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(all_lanes, largest[row], 2));
    decay[row] = weight_of(state.maximum[row], largest[row]);
    state.maximum[row] = largest[row];
  }
  // A block always has a valid token, so `largest` is a number unless the scores are not.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[half][i] = exp2f(scores[half][i] - largest[i / 2]);
      added[i / 2] += scores[half][i];
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) state.weight[row] = state.weight[row] * decay[row] + added[row];
  const std::uint32_t p0 = pack(scores[0][0], scores[0][1]), p1 = pack(scores[0][2], scores[0][3]);
  const std::uint32_t p2 = pack(scores[1][0], scores[1][1]), p3 = pack(scores[1][2], scores[1][3]);
  const unsigned char* values = stage + Tile::plane_bytes;
  const int token = lane % 16;
#pragma unroll
  for (int tile = 0; tile < Tile::column_tiles; tile += 2) {
    std::uint32_t v[4];
    const int column = tile + lane / 16;
    load_transposed(v, values + (token * Tile::row_pieces + (column ^ (token % 8))) * 16);
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      float(&sum)[4] = state.sums[tile + next];
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] *= decay[i / 2];
      multiply_add(sum, p0, p1, p2, p3, v[2 * next], v[2 * next + 1]);
    }
  }
}

template <int head_dim>
__device__ inline void keep_warp_result(Partials<head_dim, attention_warps>& results,
                                        const RunningSoftmax<head_dim>& state, int warp, int lane) {
  const int group = lane / 4, quad = lane % 4;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    // Each lane of a quad has summed its own tokens.
    float weight = state.weight[row];
    weight += __shfl_xor_sync(all_lanes, weight, 1);
    weight += __shfl_xor_sync(all_lanes, weight, 2);
    if (quad == 0) {
      results.maximum[warp][row * 8 + group] = state.maximum[row];
      results.weight[warp][row * 8 + group] = weight;
    }
  }
#pragma unroll
  for (int tile = 0; tile < head_dim / 8; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      results.sums[warp][(i / 2) * 8 + group][tile * 8 + quad * 2 + i % 2] = state.sums[tile][i];
    }
  }
}

/// Maximum, weight and one column of several partial results, in order.
struct Merged {
  float maximum = -INFINITY, weight = 0, sum = 0;
  __device__ void add(float other_maximum, float other_weight, float other_sum) {
    const float larger = fmaxf(maximum, other_maximum);
    const float keep = weight_of(maximum, larger), take = weight_of(other_maximum, larger);
    maximum = larger;
    weight = weight * keep + other_weight * take;
    sum = sum * keep + other_sum * take;
  }
  /// NaN stays; nothing seen is zero.
  __device__ float result() const { return weight > 0 || isnan(weight) ? sum / weight : 0.0f; }
};

/// Queries of a group behind norm and rotation; rows padded by a piece, so that reading meets no bank twice.
template <int head_dim>
struct Queries {
  uint4 rows[group_rows][head_dim / 8 + 1];
};

/// Norms and rotates the new token's queries of this group, a warp a head; `slot` >= 0: its key and value go into the
/// pool there.
template <int head_dim>
__device__ inline void take_new_token(const AttentionArguments& a, Queries<head_dim>& queries, std::int64_t sequence,
                                      int kv_head, const Angles<head_dim / 64>& angles, std::int64_t slot, int warp,
                                      int lane) {
  constexpr int pairs = head_dim / 64, half = head_dim / 2;
  const NewTokenArguments& fresh = a.fresh;
  const int first = lane * pairs;
  const std::uint16_t* const row = fresh.qkv + sequence * fresh.qkv_stride;
  const int heads = a.group + (slot >= 0 ? 2 : 0);
  for (int head = warp; head < heads; head += attention_warps) {
    const bool is_query = head < a.group, is_key = head == a.group;
    const int index = is_query ? kv_head * a.group + head : a.heads + kv_head + (is_key ? 0 : a.kv_heads);
    const std::uint16_t* const from = row + static_cast<std::int64_t>(index) * head_dim + first;
    HalfHead<pairs> low = read_half<pairs>(from), high = read_half<pairs>(from + half);
    if (is_query || is_key) {
      const std::uint16_t* const weight = is_query ? fresh.q_norm : fresh.k_norm;
      if (weight != nullptr) normalise<pairs>(low, high, weight, first, fresh.epsilon);
      rotate<pairs>(low, high, angles);
    }
    std::uint16_t* to = reinterpret_cast<std::uint16_t*>(queries.rows[is_query ? head : 0]);
    if (!is_query) {
      to = a.pool + slot / kv_tokens * a.block_values + kv_head * a.head_values + (is_key ? 0 : kv_tokens * head_dim) +
           slot % kv_tokens * head_dim;
    }
    write_half<pairs>(to + first, low);
    write_half<pairs>(to + first + half, high);
  }
}

template <int head_dim, bool takes_new>
__global__ void __launch_bounds__(attention_warps* warp_lanes) decode_attention_kernel(const AttentionArguments a) {
  using Tile = AttentionTile<head_dim>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ bool is_last;
  __shared__ Queries<takes_new ? head_dim : 32> queries;
  if constexpr (!takes_new) let_successor_start();
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes, group = lane / 4, quad = lane % 4;
  const int split = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z;
  const bool is_cluster = cluster_blocks() > 1;  // then it has all splits
  // Lengths and tables are older than the kernel before this one.
  int length = max(0, min(a.lengths[sequence], a.table_stride * kv_tokens));
  if (takes_new && length > a.fresh.table_positions) length = 0;
  const int blocks = (length + kv_tokens - 1) / kv_tokens;
  const int split_blocks = (blocks + a.splits - 1) / a.splits;
  const int used_splits = split_blocks == 0 ? 1 : (blocks + split_blocks - 1) / split_blocks;
  if (split >= used_splits && !is_cluster) return;
  const int begin = min(blocks, split * split_blocks), end = min(blocks, begin + split_blocks);
  const std::int64_t table_index = a.table_of != nullptr ? a.table_of[sequence] : sequence;
  const std::int32_t* const table = a.tables + table_index * a.table_stride;
  const int mine = begin + warp < end ? (end - begin - warp + attention_warps - 1) / attention_warps : 0;
  // Lane i has the table entry of this warp's i-th block of 32.
  int entries = 0;
  const auto load_entries = [&](int first) {
    const int index = first + lane;
    entries = index < mine ? table[begin + warp + index * attention_warps] : -1;
  };
  load_entries(0);

  const std::uint16_t* const pool = a.pool + kv_head * a.head_values;
  unsigned char* const ring = shared + warp * attention_stages * Tile::stage_bytes;
  const auto fetch = [&](int index) {
    if (index > 0 && index % warp_lanes == 0) load_entries(index);
    const int entry = __shfl_sync(all_lanes, entries, index % warp_lanes);
    if (index < mine) {
      const bool exists = entry >= 0 && entry < a.blocks;
      const int token = (begin + warp + index * attention_warps) * kv_tokens;
      fetch_block<head_dim>(ring + index % attention_stages * Tile::stage_bytes,
                            pool + (exists ? entry : 0) * a.block_values, exists ? length - token : 0, lane);
    }
    commit_copies();
    return entry;
  };
  RunningSoftmax<head_dim> state;
  const float scale = a.scale * log2_e;
  unsigned missing = 0;  // bit i: the block i steps ahead is not in the pool
  const auto fetch_first = [&](int from, int to) {
#pragma unroll
    for (int i = 0; i < attention_stages; ++i) {
      if (i < from || i >= to) continue;
      const int entry = fetch(i);
      missing |= (entry < 0 || entry >= a.blocks ? 1u : 0u) << i;
    }
  };
  // All blocks but the one with the new token are older than the kernel before this one.
  const bool has_new = mine > 0 && begin + warp + (mine - 1) * attention_warps == blocks - 1;
  const int early = takes_new ? min(attention_stages, has_new ? mine - 1 : mine) : 0;
  if constexpr (takes_new) {
    const bool is_owner = begin < end && end == blocks;
    Angles<head_dim / 64> angles{};
    std::int64_t slot = -1;
    if (length > 0) {
      angles = read_angles<head_dim / 64>(a.fresh.cos, a.fresh.sin, length - 1, lane * (head_dim / 64));
      const int entry = is_owner ? table[blocks - 1] : -1;
      if (entry >= 0 && entry < a.blocks) slot = std::int64_t{entry} * kv_tokens + (length - 1) % kv_tokens;
    }
    fetch_first(0, early);
    wait_for_predecessor();
    // Not before: the next product's weights would take bandwidth from the product that this waits for.
    let_successor_start();
    take_new_token<head_dim>(a, queries, sequence, kv_head, angles, slot, warp, lane);
    __syncthreads();
  } else {
    wait_for_predecessor();
  }

  // Rows of the group that are not there stay zero.
  const std::int64_t first_head = static_cast<std::int64_t>(sequence) * a.heads + kv_head * a.group;
  uint4 q[Tile::parts][2] = {};
#pragma unroll
  for (int part = 0; part < Tile::parts; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + group;
      if (row >= a.group) continue;
      if constexpr (takes_new) {
        q[part][half] = queries.rows[row][part * 4 + quad];
      } else {
        q[part][half] = *reinterpret_cast<const uint4*>(a.q + (first_head + row) * head_dim + part * 32 + quad * 8);
      }
    }
  }
  fetch_first(early, attention_stages);
  for (int index = 0; index < mine; ++index) {
    wait_copies<attention_stages - 1>();
    __syncwarp();
    const int token = (begin + warp + index * attention_warps) * kv_tokens;
    if ((missing & 1u) == 0) {
      attend_block<head_dim>(state, ring + index % attention_stages * Tile::stage_bytes, q, length - token, scale,
                             lane);
    }
    __syncwarp();  // all lanes have read the stage
    const int entry = fetch(index + attention_stages);
    missing = missing >> 1 | (entry < 0 || entry >= a.blocks ? 1u : 0u) << (attention_stages - 1);
  }
  wait_copies<0>();
  __syncthreads();  // the rings become results

  auto& results = *reinterpret_cast<Results<head_dim>*>(shared);
  keep_warp_result<head_dim>(results.of_warps, state, warp, lane);
  __syncthreads();
  const std::int64_t pair = static_cast<std::int64_t>(sequence) * a.kv_heads + kv_head;
  const auto partial_of = [&](int part, int row) {
    return a.partial + ((pair * a.splits + part) * a.group + row) * (head_dim + 2);
  };
  for (int i = threadIdx.x; i < a.group * head_dim; i += attention_warps * warp_lanes) {
    const int row = i / head_dim, column = i % head_dim;
    Merged merged;
#pragma unroll
    for (int w = 0; w < attention_warps; ++w) {
      merged.add(results.of_warps.maximum[w][row], results.of_warps.weight[w][row],
                 results.of_warps.sums[w][row][column]);
    }
    if (is_cluster) {
      results.of_block.sums[0][row][column] = merged.sum;
      if (column == 0) {
        results.of_block.maximum[0][row] = merged.maximum;
        results.of_block.weight[0][row] = merged.weight;
      }
    } else if (used_splits == 1) {
      a.out[(first_head + row) * head_dim + column] = to_bf16(merged.result());
    } else {
      float* const partial = partial_of(split, row);
      partial[column] = merged.sum;
      if (column == 0) {
        partial[head_dim] = merged.maximum;
        partial[head_dim + 1] = merged.weight;
      }
    }
  }
  if (is_cluster) {
    cluster_barrier();
    const int threads = attention_warps * warp_lanes;
    for (int i = split * threads + threadIdx.x; i < a.group * head_dim; i += a.splits * threads) {
      const int row = i / head_dim, column = i % head_dim;
      Merged merged;
      for (int part = 0; part < a.splits; ++part) {
        merged.add(read_of_block(&results.of_block.maximum[0][row], part),
                   read_of_block(&results.of_block.weight[0][row], part),
                   read_of_block(&results.of_block.sums[0][row][column], part));
      }
      a.out[(first_head + row) * head_dim + column] = to_bf16(merged.result());
    }
    cluster_barrier();  // nobody ends while others read its results
    return;
  }
  if (used_splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(a.finished + pair, 1u) + 1 == static_cast<unsigned>(used_splits);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // Every part's share of each row first, then columns: reads of different parts do not wait for each other.
  auto& shares = *reinterpret_cast<float(*)[group_rows][splits_max]>(shared);
  for (int row = warp; row < a.group; row += attention_warps) {
    float maximum = -INFINITY, weight = 0;
    for (int part = lane; part < used_splits; part += warp_lanes) {
      maximum = fmaxf(maximum, __ldcg(partial_of(part, row) + head_dim));
    }
    maximum = warp_max(maximum);
    for (int part = lane; part < used_splits; part += warp_lanes) {
      const float share = weight_of(__ldcg(partial_of(part, row) + head_dim), maximum);
      weight += share * __ldcg(partial_of(part, row) + head_dim + 1);
      shares[row][part] = share;
    }
    weight = warp_sum(weight);
    const float inverse = weight > 0 || isnan(weight) ? 1 / weight : 0.0f;
    for (int part = lane; part < used_splits; part += warp_lanes) shares[row][part] *= inverse;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.group * head_dim; i += attention_warps * warp_lanes) {
    const int row = i / head_dim, column = i % head_dim;
    float sum = 0;
#pragma unroll 8
    for (int part = 0; part < used_splits; ++part) {
      sum += shares[row][part] * __ldcg(partial_of(part, row) + column);
    }
    a.out[(first_head + row) * head_dim + column] = to_bf16(sum);
  }
  if (threadIdx.x == 0) a.finished[pair] = 0;  // for the next call
}

template <int head_dim, bool takes_new>
cudaError_t start_attention_kernel(const AttentionArguments& a, bool overlapped, cudaStream_t stream) {
  using Tile = AttentionTile<head_dim>;
  constexpr std::size_t rings = std::size_t{attention_warps} * attention_stages * Tile::stage_bytes;
  constexpr std::size_t results = sizeof(Results<head_dim>);
  constexpr std::size_t shared_bytes = rings > results ? rings : results;
  const auto kernel = decode_attention_kernel<head_dim, takes_new>;
  cudaError_t error = allow_shared(kernel, shared_bytes);
  if (error != cudaSuccess) return error;
  // Clusters of 16 are more than every device must have; this one does.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  const bool is_power = (a.splits & (a.splits - 1)) == 0;
  const unsigned cluster = is_power && a.splits <= cluster_blocks_max ? static_cast<unsigned>(a.splits) : 1;
  const dim3 grid(static_cast<unsigned>(a.splits), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(a.sequences));
  return start_kernel(kernel, {grid, attention_warps * warp_lanes, shared_bytes, cluster, overlapped}, stream, a);
}

template <int head_dim>
cudaError_t start_attention(const AttentionArguments& a, bool overlapped, cudaStream_t stream) {
  return a.fresh.qkv != nullptr ? start_attention_kernel<head_dim, true>(a, overlapped, stream)
                                : start_attention_kernel<head_dim, false>(a, overlapped, stream);
}

}  // namespace penstock::kernels::cuda::device
