#include "kernels/cuda/prefill_attention.hpp"

#include <algorithm>

#include "kernels/cuda/prefill_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::uint32_t kernel_block_tokens = 16, group_max = 16, tile_rows = 128;
constexpr std::int32_t tile_keys = 128;
constexpr std::size_t counters_bytes = 256;

/// Heads that share a KV head are rows of the same tile: so many tokens fit.
std::uint32_t tile_tokens(std::uint32_t heads, std::uint32_t kv_heads) {
  return tile_rows / std::max(1u, heads / std::max(1u, kv_heads));
}

std::uint64_t pool_rows(const KvPool& pool) {
  return std::uint64_t{pool.blocks} * pool.kv_heads * pool.layers * 2 * pool.block_tokens;
}

Result<void> validate(const PrefillAttention& work) {
  constexpr std::string_view name = "prefill_attention";
  constexpr std::uint64_t int_max = 0x7fffffffu;
  const KvPool& pool = work.pool;
  if (pool.head_dim != 64 && pool.head_dim != 128) return bad_shape(name, "head_dim must be 64 or 128");
  if (pool.block_tokens != kernel_block_tokens) return bad_shape(name, "blocks must have 16 tokens");
  if (pool.kv_heads == 0 || work.heads == 0 || work.heads % pool.kv_heads != 0) {
    return bad_shape(name, "heads must be a multiple of kv_heads");
  }
  if (work.heads / pool.kv_heads > group_max) return bad_shape(name, "more than 16 heads share a KV head");
  if (work.layer >= pool.layers) return bad_shape(name, "layer is out of range");
  if (pool_rows(pool) > int_max - 32) return bad_shape(name, "the pool has more than 2^31 rows of keys and values");
  if (work.rows > int_max || std::uint64_t{work.tile_count} * pool.kv_heads > int_max / 2) {
    return bad_shape(name, "more than 2^31 rows or 2^30 tiles");
  }
  if (!(work.scale > 0)) return bad_shape(name, "scale must be above 0");
  if (work.multiprocessors == 0) return bad_shape(name, "the number of multiprocessors is needed");
  if (work.workspace == nullptr) return bad_shape(name, "a workspace is needed");
  return {};
}

std::uint32_t parts_max(const PrefillShape& shape) {
  return std::max(2u, shape.multiprocessors / std::max(1u, shape.kv_heads));
}

/// Splits tiles that take twice as long as all work would if it were spread evenly, into parts that do not: if there is
/// nothing else, no multiprocessor gets two of them.
void split_tiles(PrefillPlan& plan, std::int64_t steps, const PrefillShape& shape) {
  constexpr std::int64_t part_steps_min = 8;  // a merge takes as long as a few steps
  const std::int64_t devices = std::max(1u, shape.multiprocessors);
  const std::int64_t even = std::max(part_steps_min, (steps * shape.kv_heads + devices - 1) / devices);
  const auto parts_limit = static_cast<std::int32_t>(parts_max(shape));
  std::int32_t used = 0;
  const std::size_t tiles = plan.tiles.size();
  for (std::size_t i = 0; i < tiles; ++i) {
    const PrefillTile whole = plan.tiles[i];
    const auto parts = static_cast<std::int32_t>(whole.end / even);
    if (parts < 2 || used + parts > parts_limit) continue;
    plan.merges.push_back({whole.sequence, whole.first, used, parts});
    for (std::int32_t part = 0; part < parts; ++part) {
      const PrefillTile piece{whole.sequence, whole.first, whole.end * part / parts, whole.end * (part + 1) / parts,
                              used + part};
      if (part == 0) plan.tiles[i] = piece;
      if (part > 0) plan.tiles.push_back(piece);
    }
    used += parts;
  }
}

/// Blocks that run at the same time read the same keys and values, if those of so many heads fit the second-level
/// cache.
std::uint32_t heads_at_once(const PrefillAttention& work) {
  constexpr std::uint64_t cached_bytes_max = std::uint64_t{32} << 20;
  const KvPool& pool = work.pool;
  const std::uint64_t head_bytes = std::uint64_t{work.longest} * 2 * pool.head_dim * sizeof(Bf16);
  std::uint32_t heads = pool.kv_heads;
  while (heads > 1 && (heads * head_bytes > cached_bytes_max || pool.kv_heads % heads != 0)) --heads;
  return heads;
}

}  // namespace

PrefillPlan plan_prefill(std::span<const PrefillSequence> sequences, const PrefillShape& shape) {
  const auto tokens = static_cast<std::int32_t>(tile_tokens(shape.heads, shape.kv_heads));
  PrefillPlan plan;
  std::int64_t steps = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const PrefillSequence& sequence = sequences[s];
    for (std::int32_t first = 0; first < sequence.rows; first += tokens) {
      const std::int32_t keys = sequence.length - sequence.rows + std::min(first + tokens, sequence.rows);
      plan.tiles.push_back({static_cast<std::int32_t>(s), first, 0, (keys + tile_keys - 1) / tile_keys, -1});
      steps += plan.tiles.back().end;
    }
  }
  split_tiles(plan, steps, shape);
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(),
                   [](const PrefillTile& a, const PrefillTile& b) { return a.end - a.begin > b.end - b.begin; });
  return plan;
}

PrefillSizes prefill_sizes_max(std::uint32_t rows, std::uint32_t sequences, const PrefillShape& shape) {
  const std::uint64_t parts = parts_max(shape);
  const std::uint64_t tiles = rows / tile_tokens(shape.heads, shape.kv_heads) + std::min(rows, sequences);
  const std::size_t part_bytes = std::size_t{shape.kv_heads} * tile_rows * (shape.head_dim + 2) * sizeof(float);
  return {tiles + parts, parts / 2, counters_bytes + parts * part_bytes};
}

Result<void> prefill_attention(const PrefillAttention& work, Start start, Stream stream) {
  PENSTOCK_TRY_VOID(validate(work));
  if (work.tile_count == 0) return {};
  const KvPool& pool = work.pool;
  static_assert(sizeof(PrefillSequence) == 4 * sizeof(std::int32_t) &&
                sizeof(PrefillTile) == 5 * sizeof(std::int32_t) && sizeof(PrefillMerge) == 4 * sizeof(std::int32_t));
  PrefillArguments a{};
  a.q = work.q;
  a.out = work.out;
  a.pool = pool.base;
  a.tables = work.tables;
  a.sequences = reinterpret_cast<const std::int32_t*>(work.sequences);
  a.tiles = reinterpret_cast<const std::int32_t*>(work.tiles);
  a.merges = reinterpret_cast<const std::int32_t*>(work.merges);
  a.counters = static_cast<std::uint32_t*>(work.workspace);
  a.partial = reinterpret_cast<float*>(static_cast<std::byte*>(work.workspace) + counters_bytes);
  a.pool_rows = static_cast<std::int64_t>(pool_rows(pool));
  a.rows = static_cast<std::int32_t>(work.rows);
  a.heads = static_cast<std::int32_t>(work.heads);
  a.kv_heads = static_cast<std::int32_t>(pool.kv_heads);
  a.group = a.heads / a.kv_heads;
  a.tile_tokens = static_cast<std::int32_t>(tile_tokens(work.heads, pool.kv_heads));
  a.tile_count = static_cast<std::int32_t>(work.tile_count);
  a.merge_count = static_cast<std::int32_t>(work.merge_count);
  a.heads_at_once = static_cast<std::int32_t>(heads_at_once(work));
  a.table_stride = static_cast<std::int32_t>(work.table_stride);
  a.blocks = static_cast<std::int32_t>(pool.blocks);
  a.layers = static_cast<std::int32_t>(pool.layers);
  a.layer = static_cast<std::int32_t>(work.layer);
  a.scale = work.scale;
  const auto items = static_cast<std::uint64_t>(work.tile_count) * pool.kv_heads;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(items, work.multiprocessors));
  const bool overlapped = start == Start::overlapped;
  const int code = pool.head_dim == 64 ? start_prefill_attention_64(a, blocks, overlapped, stream)
                                       : start_prefill_attention_128(a, blocks, overlapped, stream);
  return check_launch(code, "prefill_attention");
}

}  // namespace penstock::kernels::cuda
