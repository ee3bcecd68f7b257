#include "kernels/cuda/rope.hpp"

#include "kernels/cuda/rope_launch.hpp"

namespace penstock::kernels::cuda {

std::uint64_t bytes_of(const RopeAndStore& work) {
  const std::uint64_t heads = work.heads + 2ull * work.pool.kv_heads;
  return std::uint64_t{work.tokens} * (heads * work.pool.head_dim * 4 + work.pool.head_dim * 4 + 12);
}

Result<void> rope_and_store(const RopeAndStore& work, Start start, Stream stream) {
  constexpr std::string_view name = "rope_and_store";
  const KvPool& pool = work.pool;
  if (pool.head_dim != 64 && pool.head_dim != 128) return bad_shape(name, "head_dim must be 64 or 128");
  if (work.heads == 0 || pool.kv_heads == 0) return bad_shape(name, "there are no heads");
  if (work.layer >= pool.layers) return bad_shape(name, "layer is out of range");
  if (work.qkv_stride % 8 != 0 || work.qkv_stride < (std::uint64_t{work.heads} + 2 * pool.kv_heads) * pool.head_dim) {
    return bad_shape(name, "qkv_stride must hold all heads and be a multiple of 8");
  }
  if ((work.q_norm == nullptr) != (work.k_norm == nullptr)) return bad_shape(name, "q_norm and k_norm come together");
  if (work.tokens > 0x7fffffffu) return bad_shape(name, "too many tokens");
  if (work.tokens == 0) return {};
  RopeArguments a{};
  a.qkv = work.qkv;
  a.q = work.q;
  a.pool = pool.base + work.layer * pool.layer_values();
  a.positions = work.positions;
  a.slots = work.slots;
  a.cos = work.cos;
  a.sin = work.sin;
  a.q_norm = work.q_norm;
  a.k_norm = work.k_norm;
  a.qkv_stride = static_cast<std::int64_t>(work.qkv_stride);
  a.block_values = static_cast<std::int64_t>(pool.block_values());
  a.head_values = static_cast<std::int64_t>(pool.head_values());
  a.plane_values = static_cast<std::int64_t>(pool.plane_values());
  a.slots_end = static_cast<std::int64_t>(pool.blocks) * pool.block_tokens;
  a.heads = static_cast<std::int32_t>(work.heads);
  a.kv_heads = static_cast<std::int32_t>(pool.kv_heads);
  a.block_tokens = static_cast<std::int32_t>(pool.block_tokens);
  a.table_positions = static_cast<std::int32_t>(work.table_positions);
  a.tokens = static_cast<std::int32_t>(work.tokens);
  a.epsilon = work.epsilon;
  return check_launch(start_rope(a, pool.head_dim, start == Start::overlapped, stream), name);
}

}  // namespace penstock::kernels::cuda
