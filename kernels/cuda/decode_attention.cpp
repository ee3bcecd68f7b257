#include "kernels/cuda/decode_attention.hpp"

#include <algorithm>

#include "kernels/cuda/attention_launch.hpp"

namespace penstock::kernels::cuda {
namespace {

constexpr std::uint32_t kernel_block_tokens = 16, group_max = 16, splits_max = 256;
// Of pairs of a sequence and a KV head. Their place is the same for every call, since they must stay zero between
// calls.
constexpr std::uint32_t pairs_max = 65536;
constexpr std::size_t counters_bytes = pairs_max * sizeof(std::uint32_t);

Result<void> validate(const DecodeAttention& work) {
  constexpr std::string_view name = "decode_attention";
  const KvPool& pool = work.pool;
  if (pool.head_dim != 64 && pool.head_dim != 128) return bad_shape(name, "head_dim must be 64 or 128");
  if (pool.block_tokens != kernel_block_tokens) return bad_shape(name, "blocks must have 16 tokens");
  if (pool.kv_heads == 0 || work.heads == 0 || work.heads % pool.kv_heads != 0) {
    return bad_shape(name, "heads must be a multiple of kv_heads");
  }
  if (work.heads / pool.kv_heads > group_max) return bad_shape(name, "more than 16 heads share a KV head");
  if (pool.kv_heads > pairs_max || work.sequences > pairs_max ||
      std::uint64_t{work.sequences} * pool.kv_heads >= pairs_max) {
    return bad_shape(name, "sequences * kv_heads must be below 65536");
  }
  if (work.layer >= pool.layers) return bad_shape(name, "layer is out of range");
  if (work.splits == 0 || work.splits > splits_max) return bad_shape(name, "splits must be 1 to 256");
  if (work.workspace == nullptr) return bad_shape(name, "a workspace is needed");
  return {};
}

}  // namespace

// Up to 16 are merged within a cluster, more of them through memory, which takes about 3 us longer. While most
// multiprocessors would have nothing to do, four KV blocks, one a warp, are worth a part of their own.
std::uint32_t choose_splits(std::uint32_t sequences, std::uint32_t kv_heads, std::uint32_t length,
                            std::uint32_t multiprocessors) {
  constexpr std::uint32_t split_blocks_min = 16, split_blocks_few = 4, most = 64;
  const std::uint64_t pairs = std::max(std::uint64_t{1}, std::uint64_t{sequences} * kv_heads);
  const std::uint32_t blocks = (length + kernel_block_tokens - 1) / kernel_block_tokens;
  std::uint32_t splits = 1;
  // Until every multiprocessor has more than one block, of two that it has room for.
  while (2 * splits <= most && pairs * splits * 2 < std::uint64_t{multiprocessors} * 3) {
    const bool are_few = pairs * splits * 4 <= multiprocessors;
    if (2 * splits * (are_few ? split_blocks_few : split_blocks_min) > blocks) break;
    splits *= 2;
  }
  return splits;
}

std::size_t workspace_bytes(std::uint32_t sequences, std::uint32_t heads, std::uint32_t head_dim,
                            std::uint32_t splits) {
  const std::size_t partial = std::size_t{sequences} * heads * splits * (head_dim + 2) * sizeof(float);
  return counters_bytes + partial;
}

namespace {

Result<void> run(const DecodeAttention& work, const NewTokenArguments& fresh, Start start, Stream stream) {
  PENSTOCK_TRY_VOID(validate(work));
  if (work.sequences == 0) return {};
  const KvPool& pool = work.pool;
  auto* const bytes = static_cast<std::byte*>(work.workspace);
  AttentionArguments a{};
  a.q = work.q;
  a.out = work.out;
  a.pool = pool.base + work.layer * pool.layer_values();
  a.tables = work.tables;
  a.table_of = work.table_of;
  a.lengths = work.lengths;
  a.finished = reinterpret_cast<std::uint32_t*>(bytes);
  a.partial = reinterpret_cast<float*>(bytes + counters_bytes);
  a.block_values = static_cast<std::int64_t>(pool.block_values());
  a.head_values = static_cast<std::int64_t>(pool.head_values());
  a.heads = static_cast<std::int32_t>(work.heads);
  a.kv_heads = static_cast<std::int32_t>(pool.kv_heads);
  a.group = a.heads / a.kv_heads;
  a.sequences = static_cast<std::int32_t>(work.sequences);
  a.splits = static_cast<std::int32_t>(work.splits);
  a.blocks = static_cast<std::int32_t>(pool.blocks);
  a.table_stride = static_cast<std::int32_t>(work.table_stride);
  a.scale = work.scale;
  a.fresh = fresh;
  const bool overlapped = start == Start::overlapped;
  const int code = pool.head_dim == 64 ? start_decode_attention_64(a, overlapped, stream)
                                       : start_decode_attention_128(a, overlapped, stream);
  return check_launch(code, "decode_attention");
}

}  // namespace

Result<void> decode_attention(const DecodeAttention& work, Start start, Stream stream) {
  return run(work, {}, start, stream);
}

Result<void> decode_attention(const DecodeAttention& work, const NewTokens& fresh, Start start, Stream stream) {
  constexpr std::string_view name = "decode_attention";
  const std::uint64_t heads = std::uint64_t{work.heads} + 2ull * work.pool.kv_heads;
  if (fresh.qkv == nullptr || fresh.cos == nullptr || fresh.sin == nullptr) {
    return bad_shape(name, "qkv, cos and sin are needed");
  }
  if (fresh.qkv_stride % 8 != 0 || fresh.qkv_stride < heads * work.pool.head_dim) {
    return bad_shape(name, "qkv_stride must hold all heads and be a multiple of 8");
  }
  if ((fresh.q_norm == nullptr) != (fresh.k_norm == nullptr)) return bad_shape(name, "q_norm and k_norm come together");
  NewTokenArguments a{};
  a.qkv = fresh.qkv;
  a.cos = fresh.cos;
  a.sin = fresh.sin;
  a.q_norm = fresh.q_norm;
  a.k_norm = fresh.k_norm;
  a.qkv_stride = static_cast<std::int64_t>(fresh.qkv_stride);
  a.table_positions = static_cast<std::int32_t>(fresh.table_positions);
  a.epsilon = fresh.epsilon;
  return run(work, a, start, stream);
}

}  // namespace penstock::kernels::cuda
