// Attention of one new token for each sequence over its cached keys and values, bound by reading those. Any thread;
// queues work on the stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

struct DecodeAttention {
  const Bf16* q = nullptr;  // [sequences][heads][head_dim], dense
  Bf16* out = nullptr;      // the same
  KvPool pool;              // blocks of 16 tokens; head_dim 64 or 128
  std::uint32_t layer = 0;
  std::uint32_t sequences = 0;
  std::uint32_t heads = 0;  // up to 16 for each KV head
  // Tables and lengths are read before the kernel before this one has ended: it must not be what writes them, nor may a
  // kernel that was started as overlapped.
  const std::int32_t* tables = nullptr;    // [...][table_stride] blocks; those out of range read as no tokens
  const std::int32_t* table_of = nullptr;  // [sequences] the table that each has; null: the one of its own index
  std::uint32_t table_stride = 0;
  const std::int32_t* lengths = nullptr;  // [sequences] tokens in the cache, the new one too; 0: out is zero
  float scale = 0;                        // of q . k
  std::uint32_t splits = 1;               // 1 to 256 parts that a sequence is cut into, each a block's work
  void* workspace = nullptr;              // workspace_bytes(), zeros before the first use; each call leaves it usable
};

/// What the projection of a layer gives for the new token of each sequence: the kernel itself norms and rotates queries
/// and key, and stores key and value at the sequence's last position. Then DecodeAttention::q is not read.
struct NewTokens {
  const Bf16* qkv = nullptr;     // [sequences][heads + 2 kv_heads][head_dim], rows qkv_stride values apart
  std::uint64_t qkv_stride = 0;  // a multiple of 8
  const float* cos = nullptr;    // [table_positions][head_dim / 2]
  const float* sin = nullptr;
  std::uint32_t table_positions = 0;  // lengths beyond are taken as no tokens
  const Bf16* q_norm = nullptr;       // [head_dim], with k_norm; null: no norm
  const Bf16* k_norm = nullptr;
  float epsilon = 0;
};

/// Parts for good balance when sequences have about `length` tokens.
std::uint32_t choose_splits(std::uint32_t sequences, std::uint32_t kv_heads, std::uint32_t length,
                            std::uint32_t multiprocessors);
/// For up to so many sequences and splits.
std::size_t workspace_bytes(std::uint32_t sequences, std::uint32_t heads, std::uint32_t head_dim, std::uint32_t splits);

/// Softmax in float; probabilities are rounded to bf16 before they meet the values. The order of all sums depends on
/// `splits` and a sequence's own length only. Errors: invalid_argument for shapes.
Result<void> decode_attention(const DecodeAttention& work, Start start, Stream stream);
/// Tokens before the new one are read before the kernel before this one has ended: see `tables`.
Result<void> decode_attention(const DecodeAttention& work, const NewTokens& fresh, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
