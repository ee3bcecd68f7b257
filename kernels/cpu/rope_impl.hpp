// QK-norm, RoPE and the write of K and V into the paged pool, for one vector type S; included by level_*.cpp only.
// Bytes moved: each row's q, k and v once, and k and v once more into the pool.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/elementwise_impl.hpp"
#include "kernels/cpu/kernel_table.hpp"

namespace penstock::kernels::cpu::detail {

/// head[dim] = head / rms(head) * weight
template <class S>
inline void norm_head(float* head, std::size_t dim, const float* weight, float epsilon) {
  const float mean = sum_of_squares<S>(head, dim) / static_cast<float>(dim);
  const float inverse = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (std::size_t i = 0; i < dim; ++i) head[i] = head[i] * inverse * weight[i];
}

inline void rotate_pair(float& a, float& b, float cos, float sin) {
  const float x = a * cos - b * sin;
  b = a * sin + b * cos;
  a = x;
}

/// Rotates the pairs of one head; a template only so that each level has its own copy.
template <class S>
inline void rotate_head(float* head, const RopeTable& rope, std::size_t position) {
  const std::size_t pairs = rope.rotary_dim / 2;
  const float* cos = rope.cos + position * pairs;
  const float* sin = rope.sin + position * pairs;
  switch (rope.style) {
    case RopeStyle::half_split:
      for (std::size_t i = 0; i < pairs; ++i) rotate_pair(head[i], head[pairs + i], cos[i], sin[i]);
      return;
    case RopeStyle::interleaved:
      for (std::size_t i = 0; i < pairs; ++i) rotate_pair(head[2 * i], head[2 * i + 1], cos[i], sin[i]);
      return;
  }
}

/// to[dim] = head in the pool's type; dim is a multiple of 8.
template <class S>
inline void store_kv(KvType type, const float* head, std::size_t dim, std::byte* to) {
  for (std::size_t i = 0; i < dim; i += 8) {
    const auto value = S::load(head + i);
    switch (type) {
      case KvType::bf16:
        S::store_bf16(reinterpret_cast<std::uint16_t*>(to) + i, value);
        break;
      case KvType::f16:
        S::store_f16(reinterpret_cast<std::uint16_t*>(to) + i, value);
        break;
      case KvType::f32:
        S::store(reinterpret_cast<float*>(to) + i, value);
        break;
    }
  }
}

/// Address of (token, dim 0) of a plane in the sequence's block for `position`.
inline std::byte* kv_row(const AttentionArgs& args, const BlockIndex* table, std::size_t position, std::uint32_t head,
                         KvPart part) {
  const KvLayout& layout = args.kv.layout;
  const std::size_t offset = layout.plane_offset(args.kv.first_kv_head + head, args.layer, part);
  const std::size_t row = position % layout.block_tokens * layout.head_dim * kv_type_bytes(layout.type);
  return args.kv.data + table[position / layout.block_tokens] * layout.block_bytes() + offset + row;
}

template <class S>
void rope_and_store(const AttentionArgs& args, const RopeTable& rope, const QkNorm& norm, Slice slice) {
  const QkvView& qkv = args.qkv;
  const std::size_t dim = args.kv.layout.head_dim;
  std::size_t rows = 0;
  for (const AttentionSequence& sequence : args.sequences) rows += sequence.rows;
  const IndexRange mine = split(rows, slice);
  std::size_t seen = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    for (std::size_t r = 0; r < sequence.rows; ++r, ++seen) {
      if (seen < mine.begin || seen >= mine.end) continue;
      const std::size_t position = sequence.first_position + r;
      float* row = qkv.data + (sequence.first_row + r) * qkv.stride;
      for (std::uint32_t h = 0; h < qkv.heads; ++h) {
        float* head = row + qkv.q_offset + h * dim;
        if (norm.q_weight != nullptr) norm_head<S>(head, dim, norm.q_weight, norm.epsilon);
        rotate_head<S>(head, rope, position);
      }
      for (std::uint32_t h = 0; h < qkv.kv_heads; ++h) {
        float* head = row + qkv.k_offset + h * dim;
        if (norm.k_weight != nullptr) norm_head<S>(head, dim, norm.k_weight, norm.epsilon);
        rotate_head<S>(head, rope, position);
        const KvType type = args.kv.layout.type;
        store_kv<S>(type, head, dim, kv_row(args, sequence.block_table, position, h, KvPart::key));
        store_kv<S>(type, row + qkv.v_offset + h * dim, dim,
                    kv_row(args, sequence.block_table, position, h, KvPart::value));
      }
    }
  }
}

}  // namespace penstock::kernels::cpu::detail
