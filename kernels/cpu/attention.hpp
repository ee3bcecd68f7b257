// Arguments of the attention kernels: the paged KV pool's layout and one layer's call for a mixed batch of prefill
// chunks and decode rows. Plain views; the executor owns all memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/types.hpp"
#include "kernels/cpu/activations.hpp"

namespace penstock::kernels::cpu {

enum class KvType : std::uint8_t { bf16, f16, f32 };

inline std::size_t kv_type_bytes(KvType type) {
  return type == KvType::f32 ? 4 : 2;
}

enum class KvPart : std::uint8_t { key, value };

/// One block is [kv_head][layer][K/V][token][dim]; blocks follow each other in the pool.
struct KvLayout {
  std::uint32_t kv_heads = 0;  // in a block of this pool
  std::uint32_t layers = 0;
  std::uint32_t block_tokens = 16;
  std::uint32_t head_dim = 0;  // a multiple of 8, at most 256
  KvType type = KvType::bf16;

  std::size_t plane_bytes() const { return std::size_t{block_tokens} * head_dim * kv_type_bytes(type); }
  std::size_t block_bytes() const { return std::size_t{kv_heads} * layers * 2 * plane_bytes(); }
  /// Byte offset inside a block of [token 0][dim 0].
  std::size_t plane_offset(std::uint32_t kv_head, std::uint32_t layer, KvPart part) const {
    return ((std::size_t{kv_head} * layers + layer) * 2 + static_cast<std::size_t>(part)) * plane_bytes();
  }
};

/// Consecutive rows of the batch that belong to one sequence: positions first_position .. first_position + rows - 1.
/// Row r attends to positions 0 .. first_position + r, which the block table covers.
struct AttentionSequence {
  const BlockIndex* block_table = nullptr;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t first_position = 0;
};

/// Rotates pairs of a head's first `rotary_dim` values by the angle of the position.
enum class RopeStyle : std::uint8_t {
  half_split,   // pairs (i, i + rotary_dim / 2): NeoX, Hugging Face checkpoints, Qwen GGUF
  interleaved,  // pairs (2i, 2i + 1): GGUF of the Llama family
};

/// Tables made by the caller from the model's RoPE settings: cos and sin [position][rotary_dim / 2], scaled already.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::uint32_t positions = 0;
  std::uint32_t rotary_dim = 0;
  RopeStyle style = RopeStyle::half_split;
};

/// Query, key and value heads of a batch inside one projection result: row r's head h of q starts at
/// qkv + r * stride + q_offset + h * head_dim, and likewise for k and v.
struct QkvView {
  float* data = nullptr;
  std::size_t stride = 0;
  std::size_t q_offset = 0;
  std::size_t k_offset = 0;
  std::size_t v_offset = 0;
  std::uint32_t heads = 0;     // query heads of this rank
  std::uint32_t kv_heads = 0;  // key/value heads of this rank; divides heads
};

struct KvPoolView {
  std::byte* data = nullptr;
  KvLayout layout;
  std::uint32_t first_kv_head = 0;  // this rank's first head inside the layout
};

struct AttentionArgs {
  QkvView qkv;
  KvPoolView kv;
  std::uint32_t layer = 0;
  std::span<const AttentionSequence> sequences;
  float scale = 0;               // usually 1 / sqrt(head_dim)
  std::uint32_t window = 0;      // keys that a row sees, its own the last of them; 0: all
  const float* sinks = nullptr;  // [heads of this rank]: a score without a value that the softmax counts; null: none
  // Room in which parts of long decode rows meet: slots of attention_slot_floats(). Without room nothing is split.
  float* partials = nullptr;
  std::size_t partial_slots = 0;
};

/// A slot holds 512 keys' worth of one row for all its heads: outputs, largest scores, totals.
inline std::size_t attention_slot_floats(std::uint32_t heads, std::uint32_t head_dim) {
  return std::size_t{heads} * (head_dim + 2);
}

/// Per-head RMS norm of q and k before RoPE (Qwen3); weights [head_dim]. Null weights: none.
struct QkNorm {
  const float* q_weight = nullptr;
  const float* k_weight = nullptr;
  float epsilon = 1e-6f;
};

}  // namespace penstock::kernels::cpu
