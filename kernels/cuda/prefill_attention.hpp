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
/// A block's work for one KV head: some new tokens of one sequence, and which of their tiles of 128 keys.
struct PrefillTile {
  std::int32_t sequence = 0;
  std::int32_t first = 0;  // of its new tokens
  std::int32_t begin = 0;  // of tiles of keys
  std::int32_t end = 0;
  std::int32_t part = -1;  // where the result goes if these are not all keys, to be merged
};
/// New tokens whose keys are several tiles' work.
struct PrefillMerge {
  std::int32_t sequence = 0;
  std::int32_t first = 0;
  std::int32_t part = 0;  // the first of them
  std::int32_t parts = 0;
};
struct PrefillPlan {
  std::vector<PrefillTile> tiles;  // long ones first
  std::vector<PrefillMerge> merges;
};
struct PrefillShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t multiprocessors = 0;
};
/// Few new tokens after many cached ones are split over their keys, so that all multiprocessors have work.
PrefillPlan plan_prefill(std::span<const PrefillSequence> sequences, const PrefillShape& shape);
/// The most that plan_prefill() can make of so many new tokens of so many sequences.
struct PrefillSizes {
  std::uint64_t tiles = 0;
  std::uint64_t merges = 0;
  std::size_t workspace_bytes = 0;
};
PrefillSizes prefill_sizes_max(std::uint32_t rows, std::uint32_t sequences, const PrefillShape& shape);

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
  const PrefillMerge* merges = nullptr;  // the same
  std::uint32_t merge_count = 0;
  std::uint32_t longest = 0;  // length of a sequence; the order of work depends on it, no result does
  float scale = 0;            // of q . k, above 0
  std::uint32_t multiprocessors = 0;
  void* workspace = nullptr;  // of prefill_sizes_max(), zeros before the first use; each call leaves it usable
};

/// Softmax in float; probabilities are rounded to bf16 before they meet the values. The order of a token's sums depends
/// on its own position, on where its tile ends and on how that is split. Errors: invalid_argument for shapes; internal
/// on a device that is no Hopper.
Result<void> prefill_attention(const PrefillAttention& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
