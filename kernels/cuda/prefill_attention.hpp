// Attention of many new tokens for each sequence, a prompt or a part of one, over cached keys and values up to and with
// each token itself: bound by the matrix units. Hopper only. Any thread; queues work on the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// New tokens of one sequence; their keys and values are in the pool already.
struct PrefillSequence {
  std::int32_t first_row = 0;  // of q and out
  std::int32_t rows = 0;       // new tokens, at least 1
  std::int32_t length = 0;     // tokens in the cache, the new ones too, at least `rows`
  std::int32_t table = 0;      // which block table
};
/// A block's work for one KV head: some new tokens of one sequence.
struct PrefillTile {
  std::int32_t sequence = 0;
  std::int32_t first = 0;  // of its new tokens
};
/// All tiles, those with most keys first.
std::vector<PrefillTile> plan_prefill(std::span<const PrefillSequence> sequences, std::uint32_t heads,
                                      std::uint32_t kv_heads);
/// The most tiles that plan_prefill() can make of so many new tokens of so many sequences.
std::uint64_t prefill_tiles_max(std::uint32_t rows, std::uint32_t sequences, std::uint32_t heads,
                                std::uint32_t kv_heads);

struct PrefillAttention {
  const Bf16* q = nullptr;  // [rows][heads][head_dim], dense
  Bf16* out = nullptr;      // the same; rows of no sequence are not touched
  KvPool pool;              // blocks of 16 tokens; head_dim 64 or 128
  std::uint32_t layer = 0;
  std::uint32_t rows = 0;                // of q and out
  std::uint32_t heads = 0;               // up to 16 for each KV head
  const std::int32_t* tables = nullptr;  // [...][table_stride] blocks; those out of range read as zeros
  std::uint32_t table_stride = 0;
  const PrefillSequence* sequences = nullptr;  // device memory
  const PrefillTile* tiles = nullptr;          // device memory, as plan_prefill() made them of these sequences
  std::uint32_t tile_count = 0;
  std::uint32_t longest = 0;  // length of a sequence; the order of work depends on it, no result does
  float scale = 0;            // of q . k, above 0
  std::uint32_t multiprocessors = 0;
  void* workspace = nullptr;  // prefill_workspace_bytes, zeros before the first use; each call leaves it so
};
constexpr std::size_t prefill_workspace_bytes = 256;

/// Softmax in float; probabilities are rounded to bf16 before they meet the values. The order of a token's sums depends
/// on its own position only, and on where its tile ends. Errors: invalid_argument for shapes; internal on a device that
/// is no Hopper.
Result<void> prefill_attention(const PrefillAttention& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
