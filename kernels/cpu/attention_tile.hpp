// One tile of 32 keys of attention for one vector type S: loading, scores, softmax, values. Included by
// attention_impl.hpp, whose first comment says in which order sums are made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/rope_impl.hpp"

namespace penstock::kernels::cpu::detail {

inline constexpr std::size_t key_tile = 32;
inline constexpr std::size_t part_keys = 512;  // 64 KiB of bf16 K and V at head_dim 64
inline constexpr std::size_t query_rows = 48;  // (query, head) pairs of a unit, at most
inline constexpr std::size_t head_dim_max = 256;

struct AttentionUnit {
  const AttentionSequence* sequence = nullptr;
  std::uint32_t kv_head = 0;
  std::uint32_t first_query = 0;  // within the sequence's rows
  std::uint32_t queries = 0;
  std::uint32_t first_head = 0;  // within the group of query heads
  std::uint32_t group_heads = 0;
  std::size_t key_begin = 0;  // a multiple of part_keys; not after the first key that a row sees
  std::size_t key_end = 0;
  float* partial = nullptr;  // the slot for this part; null: the unit has all keys and writes the output

  std::size_t rows() const { return std::size_t{queries} * group_heads; }
};

/// Addresses of K and V of one key tile.
struct KvRows {
  const std::byte* key[key_tile];
  const std::byte* value[key_tile];
  std::size_t count = 0;
};

/// Scratch of one unit.
struct AttentionScratch {
  alignas(64) float keys[head_dim_max * key_tile];      // [dim][32 keys]
  alignas(64) float values[key_tile * head_dim_max];    // [key][dim]
  alignas(64) float out[query_rows * head_dim_max];     // [row][dim] of this part, not yet divided by `total`
  alignas(64) float folded[query_rows * head_dim_max];  // of the parts before it
  alignas(64) float scores[query_rows][key_tile];       // then probabilities
  const float* query[query_rows];
  float largest[query_rows], folded_largest[query_rows];
  float total[query_rows], folded_total[query_rows];
  std::size_t position[query_rows];
  std::size_t first_key[query_rows];  // that the row sees; ascends like the position
  KvRows rows[2];
};

template <class S>
inline typename S::F load_kv(KvType type, const std::byte* row, std::size_t dim) {
  switch (type) {
    case KvType::bf16:
      return S::load_bf16(reinterpret_cast<const std::uint16_t*>(row) + dim);
    case KvType::f16:
      return S::load_f16(reinterpret_cast<const std::uint16_t*>(row) + dim);
    case KvType::f32:
      return S::load(reinterpret_cast<const float*>(row) + dim);
  }
  return S::zero();
}

/// Finds the rows of keys [first, first + 32), up to `end`.
template <class S>
inline void find_rows(const AttentionArgs& args, const AttentionUnit& unit, std::size_t first, std::size_t end,
                      KvRows& rows) {
  rows.count = first >= end ? 0 : end - first < key_tile ? end - first : key_tile;
  if (rows.count == 0) return;
  const KvLayout& layout = args.kv.layout;
  const std::size_t row_bytes = layout.head_dim * kv_type_bytes(layout.type);
  const std::size_t block_bytes = layout.block_bytes();
  const std::uint32_t head = args.kv.first_kv_head + unit.kv_head;
  const std::byte* plane = args.kv.data + layout.plane_offset(head, args.layer, KvPart::key);
  const std::size_t to_value = layout.plane_bytes();
  const BlockIndex* block = unit.sequence->block_table + first / layout.block_tokens;
  std::size_t inside = first % layout.block_tokens;
  const std::byte* row = plane + *block * block_bytes + inside * row_bytes;
  for (std::size_t k = 0; k < rows.count; ++k, ++inside, row += row_bytes) {
    if (inside == layout.block_tokens) {
      inside = 0;
      row = plane + *++block * block_bytes;
    }
    rows.key[k] = row;
    rows.value[k] = row + to_value;
  }
}

/// Asks for the cache lines of a row. Blocks lie far apart, so the hardware does not foresee them.
template <class S>
inline void prefetch_row(const std::byte* row, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) S::prefetch(row + line);
}

/// Fills keys and values from `rows`; keys beyond them are zero. The rows of the tile after it, `next`, are asked for
/// along the way: a row of one for each row of this that is used.
template <class S>
void load_key_tile(const AttentionArgs& args, const KvRows& rows, const KvRows& next, AttentionScratch& scratch) {
  const std::size_t dim = args.kv.layout.head_dim;
  const KvType type = args.kv.layout.type;
  const std::size_t row_bytes = dim * kv_type_bytes(type);
  for (std::size_t k = 0; k < rows.count; ++k) {
    if (k < next.count) prefetch_row<S>(next.key[k], row_bytes);
    for (std::size_t d = 0; d < dim; d += 8) S::store(scratch.values + k * dim + d, load_kv<S>(type, rows.value[k], d));
  }
  for (std::size_t k = 0; k < key_tile; k += 8) {
    for (std::size_t i = k; i < k + 8 && i < next.count; ++i) prefetch_row<S>(next.value[i], row_bytes);
    if (type == KvType::bf16 && k + 8 <= rows.count && dim % 16 == 0) {
      // Transposed as pairs of dimensions, which are 32-bit words: half the shuffles.
      for (std::size_t d = 0; d < dim; d += 16) {
        typename S::F block[8];
        for (std::size_t i = 0; i < 8; ++i) block[i] = S::load(reinterpret_cast<const float*>(rows.key[k + i] + 2 * d));
        S::transpose(block);
        for (std::size_t i = 0; i < 8; ++i) {
          S::store(scratch.keys + (d + 2 * i) * key_tile + k, S::low_bf16(block[i]));
          S::store(scratch.keys + (d + 2 * i + 1) * key_tile + k, S::high_bf16(block[i]));
        }
      }
      continue;
    }
    for (std::size_t d = 0; d < dim; d += 8) {
      typename S::F block[8];
      for (std::size_t i = 0; i < 8; ++i) {
        block[i] = k + i < rows.count ? load_kv<S>(type, rows.key[k + i], d) : S::zero();
      }
      S::transpose(block);
      for (std::size_t i = 0; i < 8; ++i) S::store(scratch.keys + (d + i) * key_tile + k, block[i]);
    }
  }
}

/// scores[N rows][16 keys from `key`] = query . keys
template <class S, int N>
inline void score_rows(AttentionScratch& scratch, std::size_t row, std::size_t key, std::size_t dim) {
  typename S::F total[2][N];
  for (int n = 0; n < N; ++n) total[0][n] = total[1][n] = S::zero();
  const float* keys = scratch.keys + key;
  for (std::size_t d = 0; d < dim; ++d, keys += key_tile) {
    const auto k0 = S::load(keys), k1 = S::load(keys + 8);
    for (int n = 0; n < N; ++n) {
      const auto q = S::set1(scratch.query[row + n][d]);
      total[0][n] = S::fma(q, k0, total[0][n]);
      total[1][n] = S::fma(q, k1, total[1][n]);
    }
  }
  for (int n = 0; n < N; ++n) {
    S::store(scratch.scores[row + n] + key, total[0][n]);
    S::store(scratch.scores[row + n] + key + 8, total[1][n]);
  }
}

/// out[N rows][V vectors from `dim`] += probabilities . values over `count` keys
template <class S, int N, int V>
inline void value_rows(AttentionScratch& scratch, std::size_t row, std::size_t dim, std::size_t dims,
                       std::size_t count) {
  typename S::F total[N][V];
  for (int n = 0; n < N; ++n) {
    for (int v = 0; v < V; ++v) total[n][v] = S::load(scratch.out + (row + n) * dims + dim + 8 * v);
  }
  const float* values = scratch.values + dim;
  for (std::size_t k = 0; k < count; ++k, values += dims) {
    typename S::F value[V];
    for (int v = 0; v < V; ++v) value[v] = S::load(values + 8 * v);
    for (int n = 0; n < N; ++n) {
      const auto p = S::set1(scratch.scores[row + n][k]);
      for (int v = 0; v < V; ++v) total[n][v] = S::fma(p, value[v], total[n][v]);
    }
  }
  for (int n = 0; n < N; ++n) {
    for (int v = 0; v < V; ++v) S::store(scratch.out + (row + n) * dims + dim + 8 * v, total[n][v]);
  }
}

/// The first key that a row sees.
template <class S>
inline std::size_t first_key_of(const AttentionArgs& args, std::size_t position) {
  return args.window == 0 || position < args.window ? 0 : position + 1 - args.window;
}

/// Turns a row's scores into probabilities relative to its largest score so far; rescales its output. The row sees the
/// keys [hidden, visible) of the tile, at least one.
template <class S>
inline void softmax_row(AttentionScratch& scratch, std::size_t row, std::size_t hidden, std::size_t visible,
                        float scale, std::size_t dims) {
  float* scores = scratch.scores[row];
  for (std::size_t k = 0; k < hidden; ++k) scores[k] = -__builtin_inff();
  for (std::size_t k = visible; k < key_tile; ++k) scores[k] = -__builtin_inff();
  constexpr int vectors = key_tile / 8;
  typename S::F score[vectors];
  auto most = S::set1(scratch.largest[row]);
  for (int i = 0; i < vectors; ++i) {
    score[i] = S::mul(S::load(scores + 8 * i), S::set1(scale));
    most = S::max(most, score[i]);
  }
  const float largest = S::largest(most);
  auto sum = S::zero();
  for (int i = 0; i < vectors; ++i) {
    score[i] = exp<S>(S::sub(score[i], S::set1(largest)));
    S::store(scores + 8 * i, score[i]);
    sum = S::add(sum, score[i]);
  }
  float kept = 1.0f;
  if (largest != scratch.largest[row]) {
    alignas(32) float lanes[8];
    S::store(lanes, exp<S>(S::set1(scratch.largest[row] - largest)));
    kept = lanes[0];
    float* out = scratch.out + row * dims;
    for (std::size_t d = 0; d < dims; d += 8) S::store(out + d, S::mul(S::load(out + d), S::set1(kept)));
  }
  scratch.total[row] = scratch.total[row] * kept + S::sum(sum);
  scratch.largest[row] = largest;
}

template <class S, int N>
inline void value_group(AttentionScratch& scratch, std::size_t row, std::size_t dims, std::size_t count) {
  std::size_t d = 0;
  for (; d + 32 <= dims; d += 32) value_rows<S, N, 4>(scratch, row, d, dims, count);
  for (; d < dims; d += 8) value_rows<S, N, 1>(scratch, row, d, dims, count);
}

/// Adds the keys [first, first + count) to all rows of a unit that see them.
template <class S>
void attend_tile(AttentionScratch& scratch, std::size_t rows, std::size_t first, std::size_t count, float scale,
                 std::size_t dims) {
  // Positions ascend with the row, so the rows that come too early for this tile are the first ones, and those whose
  // window has left it are the last.
  std::size_t begin = 0;
  while (begin < rows && scratch.position[begin] < first) ++begin;
  while (rows > begin && scratch.first_key[rows - 1] >= first + count) --rows;
  std::size_t row = begin;
  for (; row + 6 <= rows; row += 6) {
    for (std::size_t k = 0; k < count; k += 16) score_rows<S, 6>(scratch, row, k, dims);
  }
  for (; row + 3 <= rows; row += 3) {
    for (std::size_t k = 0; k < count; k += 16) score_rows<S, 3>(scratch, row, k, dims);
  }
  for (; row < rows; ++row) {
    for (std::size_t k = 0; k < count; k += 16) score_rows<S, 1>(scratch, row, k, dims);
  }
  for (row = begin; row < rows; ++row) {
    const std::size_t visible = scratch.position[row] - first + 1;
    const std::size_t hidden = scratch.first_key[row] > first ? scratch.first_key[row] - first : 0;
    softmax_row<S>(scratch, row, hidden, visible < count ? visible : count, scale, dims);
  }
  for (row = begin; row + 3 <= rows; row += 3) value_group<S, 3>(scratch, row, dims, count);
  for (; row < rows; ++row) value_group<S, 1>(scratch, row, dims, count);
}

}  // namespace penstock::kernels::cpu::detail
