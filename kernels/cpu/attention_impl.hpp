// Paged attention with online softmax for one vector type S; included by level_*.cpp only.
//
// Keys are visited in tiles of 32 that start at multiples of 32 of the position, so that a row sees the same additions
// in the same order whether its prompt came in one chunk or many, and in decode. Inside a tile, scores are summed over
// the dimensions in order (lanes are keys), values over the keys in order (lanes are dimensions); a masked key adds an
// exact zero. One unit of work is (sequence, kv head, up to query_rows rows of its query heads): K and V of a tile are
// converted to floats once, K transposed, into 2 * 32 * head_dim floats that stay in L1 and serve all rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/rope_impl.hpp"

namespace penstock::kernels::cpu::detail {

inline constexpr std::size_t key_tile = 32;
inline constexpr std::size_t query_rows = 48;  // (query, head) pairs of a unit, at most
inline constexpr std::size_t head_dim_max = 256;

struct AttentionUnit {
  const AttentionSequence* sequence = nullptr;
  std::uint32_t kv_head = 0;
  std::uint32_t first_query = 0;  // within the sequence's rows
  std::uint32_t queries = 0;
  std::uint32_t first_head = 0;  // within the group of query heads
  std::uint32_t group_heads = 0;

  std::size_t rows() const { return std::size_t{queries} * group_heads; }
};

/// Scratch of one unit.
struct AttentionScratch {
  alignas(64) float keys[head_dim_max * key_tile];    // [dim][32 keys]
  alignas(64) float values[key_tile * head_dim_max];  // [key][dim]
  alignas(64) float out[query_rows * head_dim_max];   // [row][dim], not yet divided by `total`
  alignas(64) float scores[query_rows][key_tile];     // then probabilities
  const float* query[query_rows];
  float largest[query_rows];
  float total[query_rows];
  std::size_t position[query_rows];
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

/// Asks for the cache lines of one position of K and V. Blocks lie far apart, so the hardware does not foresee them.
template <class S>
inline void prefetch_position(const AttentionArgs& args, const AttentionUnit& unit, std::size_t position) {
  const std::size_t row_bytes = args.kv.layout.head_dim * kv_type_bytes(args.kv.layout.type);
  for (const KvPart part : {KvPart::key, KvPart::value}) {
    const std::byte* row = kv_row(args, unit.sequence->block_table, position, unit.kv_head, part);
    for (std::size_t line = 0; line < row_bytes; line += 64) S::prefetch(row + line);
  }
}

/// Fills keys and values for positions [first, first + count); keys beyond count are zero. The next tile's lines, up to
/// position `end`, are asked for along the way.
template <class S>
void load_key_tile(const AttentionArgs& args, const AttentionUnit& unit, std::size_t first, std::size_t count,
                   std::size_t end, AttentionScratch& scratch) {
  const std::size_t dim = args.kv.layout.head_dim;
  const KvType type = args.kv.layout.type;
  const BlockIndex* table = unit.sequence->block_table;
  for (std::size_t k = 0; k < count; ++k) {
    if (first + key_tile + k < end) prefetch_position<S>(args, unit, first + key_tile + k);
    const std::byte* row = kv_row(args, table, first + k, unit.kv_head, KvPart::value);
    for (std::size_t d = 0; d < dim; d += 8) S::store(scratch.values + k * dim + d, load_kv<S>(type, row, d));
  }
  for (std::size_t k = 0; k < key_tile; k += 8) {
    const std::byte* rows[8];
    for (std::size_t i = 0; i < 8; ++i) {
      rows[i] = k + i < count ? kv_row(args, table, first + k + i, unit.kv_head, KvPart::key) : nullptr;
    }
    if (type == KvType::bf16 && k + 8 <= count && dim % 16 == 0) {
      // Transposed as pairs of dimensions, which are 32-bit words: half the shuffles.
      for (std::size_t d = 0; d < dim; d += 16) {
        typename S::F block[8];
        for (std::size_t i = 0; i < 8; ++i) block[i] = S::load(reinterpret_cast<const float*>(rows[i] + 2 * d));
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
      for (std::size_t i = 0; i < 8; ++i) block[i] = rows[i] != nullptr ? load_kv<S>(type, rows[i], d) : S::zero();
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

/// Turns a row's scores into probabilities relative to its largest score so far; rescales its output. `visible` >= 1.
template <class S>
inline void softmax_row(AttentionScratch& scratch, std::size_t row, std::size_t visible, float scale,
                        std::size_t dims) {
  float* scores = scratch.scores[row];
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
  // Positions ascend with the row, so the rows that see nothing of this tile come first.
  std::size_t begin = 0;
  while (begin < rows && scratch.position[begin] < first) ++begin;
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
    softmax_row<S>(scratch, row, visible < count ? visible : count, scale, dims);
  }
  for (row = begin; row + 3 <= rows; row += 3) value_group<S, 3>(scratch, row, dims, count);
  for (; row < rows; ++row) value_group<S, 1>(scratch, row, dims, count);
}

template <class S>
void attend_unit(const AttentionArgs& args, const AttentionUnit& unit, const ActivationsRef& out) {
  AttentionScratch scratch;
  const QkvView& qkv = args.qkv;
  const std::size_t dims = args.kv.layout.head_dim;
  const std::size_t rows = unit.rows();
  const std::uint32_t group = qkv.heads / qkv.kv_heads;
  auto column_of = [&](std::size_t row) {
    return (std::size_t{unit.kv_head} * group + unit.first_head + row % unit.group_heads) * dims;
  };
  auto batch_row_of = [&](std::size_t row) {
    return std::size_t{unit.sequence->first_row} + unit.first_query + row / unit.group_heads;
  };
  for (std::size_t row = 0; row < rows; ++row) {
    scratch.query[row] = qkv.data + batch_row_of(row) * qkv.stride + qkv.q_offset + column_of(row);
    scratch.position[row] = std::size_t{unit.sequence->first_position} + unit.first_query + row / unit.group_heads;
    scratch.largest[row] = -__builtin_inff();
    scratch.total[row] = 0;
  }
  for (std::size_t i = 0; i < rows * dims; ++i) scratch.out[i] = 0;
  const std::size_t keys = scratch.position[rows - 1] + 1;
  for (std::size_t first = 0; first < keys; first += key_tile) {
    const std::size_t count = keys - first < key_tile ? keys - first : key_tile;
    load_key_tile<S>(args, unit, first, count, keys, scratch);
    attend_tile<S>(scratch, rows, first, count, args.scale, dims);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    float* head = scratch.out + row * dims;
    const float inverse = 1.0f / scratch.total[row];
    for (std::size_t d = 0; d < dims; ++d) head[d] *= inverse;
    store_activations<S>(head, out, batch_row_of(row), column_of(row), column_of(row) + dims);
  }
}

/// Calls visit(unit, cost) for every unit in order. Cost counts keys read and scores made.
template <class S, class Visit>
inline void for_each_unit(const AttentionArgs& args, Visit&& visit) {
  const QkvView& qkv = args.qkv;
  const std::uint32_t group = qkv.heads / qkv.kv_heads;
  for (const AttentionSequence& sequence : args.sequences) {
    // Few rows: a unit a query head or two would reload K and V; many rows: cut queries so that the unit fits.
    const std::uint32_t heads_at_once = group < query_rows ? group : query_rows;
    const std::uint32_t queries_at_once = static_cast<std::uint32_t>(query_rows) / heads_at_once;
    for (std::uint32_t head = 0; head < qkv.kv_heads; ++head) {
      for (std::uint32_t first_head = 0; first_head < group; first_head += heads_at_once) {
        const std::uint32_t heads = group - first_head < heads_at_once ? group - first_head : heads_at_once;
        for (std::uint32_t query = 0; query < sequence.rows; query += queries_at_once) {
          const std::uint32_t left = sequence.rows - query;
          const std::uint32_t queries = left < queries_at_once ? left : queries_at_once;
          const AttentionUnit unit = {&sequence, head, query, queries, first_head, heads};
          const std::size_t keys = std::size_t{sequence.first_position} + query + queries;
          visit(unit, (keys + key_tile) * (unit.rows() + 2));
        }
      }
    }
  }
}

/// A member takes the units whose middle falls into its share of the total cost.
template <class S>
void attention(const AttentionArgs& args, const ActivationsRef& out, Slice slice) {
  std::size_t total = 0;
  for_each_unit<S>(args, [&](const AttentionUnit&, std::size_t cost) { total += cost; });
  std::size_t before = 0;
  for_each_unit<S>(args, [&](const AttentionUnit& unit, std::size_t cost) {
    const std::size_t middle = before + cost / 2;
    before += cost;
    if (middle * slice.count / total == slice.index) attend_unit<S>(args, unit, out);
  });
}

}  // namespace penstock::kernels::cpu::detail
