// Paged attention with online softmax for one vector type S; included by level_*.cpp only.
//
// Keys are visited in tiles of 32 that start at multiples of 32 of the position, so that a row sees the same additions
// in the same order whether its prompt came in one chunk or many, and in decode. Inside a tile, scores are summed over
// the dimensions in order (lanes are keys), values over the keys in order (lanes are dimensions); a masked key adds an
// exact zero, and a tile of which a row sees nothing is left out for it. Every 512 keys, at multiples of 512 of the
// position, a row starts afresh, and its parts are folded together in order; so a decode row's parts may be computed by
// different threads and folded afterwards, with the same bits. One unit of work is (sequence, kv head, up to query_rows
// rows of its query heads, all keys or one part of them): K and V of a tile are converted to floats once, K transposed,
// into 2 * 32 * head_dim floats that stay in L1 and serve all rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_tile.hpp"

namespace penstock::kernels::cpu::detail {

/// What a part says about one row: its output before the division, its largest score and the sum of probabilities.
struct RowPart {
  float* out = nullptr;  // [dim]
  float* largest = nullptr;
  float* total = nullptr;
};

template <class S>
inline float exp_one(float x) {
  alignas(32) float lanes[8];
  S::store(lanes, exp<S>(S::set1(x)));
  return lanes[0];
}

/// Folds the next part into `into`, which holds the parts before it, or nothing if this is the first.
template <class S>
inline void fold_part(const RowPart& into, const RowPart& part, std::size_t dims, std::size_t part_index) {
  if (part_index == 0) {
    for (std::size_t d = 0; d < dims; d += 8) S::store(into.out + d, S::load(part.out + d));
    *into.largest = *part.largest;
    *into.total = *part.total;
    return;
  }
  const float largest = *into.largest > *part.largest ? *into.largest : *part.largest;
  const float kept = exp_one<S>(*into.largest - largest), added = exp_one<S>(*part.largest - largest);
  for (std::size_t d = 0; d < dims; d += 8) {
    const auto old = S::mul(S::load(into.out + d), S::set1(kept));
    S::store(into.out + d, S::fma(S::load(part.out + d), S::set1(added), old));
  }
  *into.largest = largest;
  *into.total = *into.total * kept + *part.total * added;
}

/// A row's total with what its head's sink adds.
template <class S>
inline float total_with_sink(const AttentionArgs& args, std::size_t head, float largest, float total) {
  return args.sinks == nullptr ? total : total + exp_one<S>(args.sinks[head] - largest);
}

template <class S>
inline void divide_row(float* out, float total, std::size_t dims) {
  const float inverse = 1.0f / total;
  for (std::size_t d = 0; d < dims; ++d) out[d] *= inverse;
}

/// A slot of args.partials: [heads][dim] outputs, then the largest scores and the totals of the heads.
template <class S>
inline RowPart partial_row(const AttentionArgs& args, float* slot, std::size_t head) {
  const std::size_t dims = args.kv.layout.head_dim, heads = args.qkv.heads;
  return {slot + head * dims, slot + heads * dims + head, slot + heads * dims + heads + head};
}

/// Attends all rows of a unit to the keys [begin, end) of one part.
template <class S>
void attend_part(const AttentionArgs& args, const AttentionUnit& unit, std::size_t begin, std::size_t end,
                 AttentionScratch& scratch) {
  const std::size_t dims = args.kv.layout.head_dim;
  const std::size_t rows = unit.rows();
  for (std::size_t row = 0; row < rows; ++row) {
    scratch.largest[row] = -__builtin_inff();
    scratch.total[row] = 0;
  }
  for (std::size_t i = 0; i < rows * dims; ++i) scratch.out[i] = 0;
  const std::size_t seen = scratch.first_key[0] / key_tile * key_tile;
  const std::size_t start = begin < seen ? seen : begin;
  find_rows<S>(args, unit, start, end, scratch.rows[0]);
  std::size_t now = 0;
  for (std::size_t first = start; first < end; first += key_tile, now = 1 - now) {
    // Beyond the part: whoever goes on with the next one finds it in the cache.
    find_rows<S>(args, unit, first + key_tile, unit.key_end, scratch.rows[1 - now]);
    load_key_tile<S>(args, scratch.rows[now], scratch.rows[1 - now], scratch);
    attend_tile<S>(scratch, rows, first, scratch.rows[now].count, args.scale, dims);
  }
}

template <class S>
void attend_unit(const AttentionArgs& args, const AttentionUnit& unit, const ActivationsRef& out) {
  AttentionScratch scratch;
  const QkvView& qkv = args.qkv;
  const std::size_t dims = args.kv.layout.head_dim;
  const std::size_t rows = unit.rows();
  const std::uint32_t group = qkv.heads / qkv.kv_heads;
  auto head_of = [&](std::size_t row) {
    return std::size_t{unit.kv_head} * group + unit.first_head + row % unit.group_heads;
  };
  auto batch_row_of = [&](std::size_t row) {
    return std::size_t{unit.sequence->first_row} + unit.first_query + row / unit.group_heads;
  };
  for (std::size_t row = 0; row < rows; ++row) {
    scratch.query[row] = qkv.data + batch_row_of(row) * qkv.stride + qkv.q_offset + head_of(row) * dims;
    scratch.position[row] = std::size_t{unit.sequence->first_position} + unit.first_query + row / unit.group_heads;
    scratch.first_key[row] = first_key_of<S>(args, scratch.position[row]);
  }
  for (std::size_t begin = unit.key_begin; begin < unit.key_end; begin += part_keys) {
    const std::size_t end = unit.key_end - begin < part_keys ? unit.key_end : begin + part_keys;
    attend_part<S>(args, unit, begin, end, scratch);
    for (std::size_t row = 0; row < rows; ++row) {
      if (scratch.position[row] < begin || scratch.first_key[row] >= end) continue;  // sees nothing of this part
      const RowPart part = {scratch.out + row * dims, scratch.largest + row, scratch.total + row};
      if (unit.partial != nullptr) {
        fold_part<S>(partial_row<S>(args, unit.partial, head_of(row)), part, dims, 0);
      } else {
        const RowPart into = {scratch.folded + row * dims, scratch.folded_largest + row, scratch.folded_total + row};
        fold_part<S>(into, part, dims, begin / part_keys - scratch.first_key[row] / part_keys);
      }
    }
  }
  if (unit.partial != nullptr) return;
  for (std::size_t row = 0; row < rows; ++row) {
    float* head = scratch.folded + row * dims;
    const float total = total_with_sink<S>(args, head_of(row), scratch.folded_largest[row], scratch.folded_total[row]);
    divide_row<S>(head, total, dims);
    const std::size_t column = head_of(row) * dims;
    store_activations<S>(head, out, batch_row_of(row), column, column + dims);
  }
}

/// Slots of args.partials that a sequence uses, one for each part of the keys that it sees; 0: it is not split. `next`
/// is the first free slot and moves on. A decode row is split if it has several parts and slots are left.
template <class S>
inline std::size_t take_slots(const AttentionArgs& args, const AttentionSequence& sequence, std::size_t& next) {
  const std::size_t position = sequence.first_position;
  const std::size_t parts = position / part_keys + 1 - first_key_of<S>(args, position) / part_keys;
  if (sequence.rows != 1 || parts < 2 || next + parts > args.partial_slots) return 0;
  next += parts;
  return parts;
}

template <class S>
inline std::size_t slot_floats(const AttentionArgs& args) {
  return std::size_t{args.qkv.heads} * (args.kv.layout.head_dim + 2);
}

/// Calls visit(unit, cost) for `unit` as a whole, or for each of its parts. Cost counts keys read and scores made.
template <class S, class Visit>
inline void for_each_part(AttentionUnit unit, float* slots, std::size_t stride, Visit&& visit) {
  const std::size_t keys = unit.key_end;
  const std::size_t first = unit.key_begin;
  const std::size_t step = slots == nullptr ? keys - first : part_keys;
  for (std::size_t begin = first; begin < keys; begin += step) {
    unit.key_begin = begin;
    unit.key_end = keys - begin < step ? keys : begin + step;
    if (slots != nullptr) unit.partial = slots + (begin - first) / part_keys * stride;
    visit(unit, (unit.key_end - begin + key_tile) * (unit.rows() + 2));
  }
}

/// Calls visit(unit, cost) for every unit in order.
template <class S, class Visit>
inline void for_each_unit(const AttentionArgs& args, Visit&& visit) {
  const QkvView& qkv = args.qkv;
  const std::uint32_t group = qkv.heads / qkv.kv_heads;
  std::size_t next_slot = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    float* slots = args.partials + next_slot * slot_floats<S>(args);
    if (take_slots<S>(args, sequence, next_slot) == 0) slots = nullptr;
    // Few rows: a unit a query head or two would reload K and V; many rows: cut queries so that the unit fits.
    const std::uint32_t heads_at_once = group < query_rows ? group : query_rows;
    const std::uint32_t queries_at_once = static_cast<std::uint32_t>(query_rows) / heads_at_once;
    for (std::uint32_t head = 0; head < qkv.kv_heads; ++head) {
      for (std::uint32_t first_head = 0; first_head < group; first_head += heads_at_once) {
        const std::uint32_t heads = group - first_head < heads_at_once ? group - first_head : heads_at_once;
        for (std::uint32_t query = 0; query < sequence.rows; query += queries_at_once) {
          const std::uint32_t left = sequence.rows - query;
          const std::uint32_t queries = left < queries_at_once ? left : queries_at_once;
          const std::size_t keys = std::size_t{sequence.first_position} + query + queries;
          const std::size_t seen = first_key_of<S>(args, std::size_t{sequence.first_position} + query);
          const std::size_t first = seen / part_keys * part_keys;
          const AttentionUnit unit = {&sequence, head, query, queries, first_head, heads, first, keys, nullptr};
          for_each_part<S>(unit, slots, slot_floats<S>(args), visit);
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

template <class S>
bool attention_is_split(const AttentionArgs& args) {
  std::size_t next = 0;
  for (const AttentionSequence& sequence : args.sequences) take_slots<S>(args, sequence, next);
  return next > 0;
}

/// Folds the parts of split sequences, head by head.
template <class S>
void merge_attention(const AttentionArgs& args, const ActivationsRef& out, Slice slice) {
  alignas(64) float folded[head_dim_max];
  const std::size_t dims = args.kv.layout.head_dim;
  const std::size_t stride = slot_floats<S>(args);
  const IndexRange heads = split(args.qkv.heads, slice);
  std::size_t next = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    float* slots = args.partials + next * stride;
    const std::size_t parts = take_slots<S>(args, sequence, next);
    if (parts == 0) continue;
    for (std::size_t head = heads.begin; head < heads.end; ++head) {
      float largest = 0, total = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        fold_part<S>({folded, &largest, &total}, partial_row<S>(args, slots + part * stride, head), dims, part);
      }
      divide_row<S>(folded, total_with_sink<S>(args, head, largest, total), dims);
      store_activations<S>(folded, out, sequence.first_row, head * dims, (head + 1) * dims);
    }
  }
}

}  // namespace penstock::kernels::cpu::detail
