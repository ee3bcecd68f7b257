// The small passes of a layer and copies of KV blocks, in Llama-3.1-8B's shape.
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/quantise.hpp"
#include "kernels/cuda/rope.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;
constexpr std::uint32_t hidden = 4096, ffn = 14336, heads = 32, kv_heads = 8, head_dim = 128, tokens_max = 2048;
constexpr std::uint32_t launches = 32;

struct Buffers {
  DeviceBuffer a, b, positions, slots, table;
};

void keep_chain(Bench& bench, const std::string& kernel, std::uint32_t tokens, double bytes,
                const std::function<Result<void>(std::uint32_t)>& launch) {
  keep(bench, {kernel, std::to_string(tokens), "overlapped", time_chain(bench, launches, launch), bytes});
}

void bench_rows(Bench& bench, std::uint32_t tokens, const Buffers& buffers) {
  const Stream stream = bench.stream.get();
  auto* const a = buffers.a.as<std::uint16_t>();
  auto* const b = buffers.b.as<std::uint16_t>();
  const auto* const weights = bench.arena.as<std::uint16_t>();
  cuda::RmsNorm norm{a, b, weights, b, tokens, hidden, 1e-5f};
  keep_chain(bench, "rms_norm+add", tokens, static_cast<double>(bytes_of(norm)),
             [&](std::uint32_t) { return rms_norm(norm, Start::overlapped, stream); });
  const cuda::SwiGlu gated{a, b, tokens, ffn};
  keep_chain(bench, "swiglu", tokens, 6.0 * tokens * ffn,
             [&](std::uint32_t) { return swiglu(gated, Start::overlapped, stream); });
  const cuda::Fp8Tokens codes{reinterpret_cast<std::uint8_t*>(b), buffers.table.as<float>()};
  const cuda::QuantisedRows quantised{a, codes, tokens, hidden};
  keep_chain(bench, "quantise", tokens, static_cast<double>(bytes_of(quantised)),
             [&](std::uint32_t) { return quantise_rows(quantised, Start::overlapped, stream); });
  keep_chain(bench, "rms_norm, quantise", tokens, static_cast<double>(bytes_of(quantised)),
             [&](std::uint32_t) { return quantise_norm(norm, codes, Start::overlapped, stream); });
  keep_chain(bench, "swiglu, quantise", tokens, 5.0 * tokens * ffn,
             [&](std::uint32_t) { return quantise_swiglu({a, codes, tokens, ffn}, Start::overlapped, stream); });
  const cuda::EmbeddingRows rows{weights, buffers.positions.as<std::uint32_t>(), a, tokens, hidden, 128256};
  keep_chain(bench, "embedding", tokens, 4.0 * tokens * hidden,
             [&](std::uint32_t) { return gather_embedding(rows, Start::overlapped, stream); });
  cuda::RopeAndStore rope;
  rope.qkv = a;
  rope.qkv_stride = (heads + 2 * kv_heads) * head_dim;
  rope.q = b;
  rope.pool = {bench.arena.as<std::uint16_t>(), 256, kv_heads, 32, 16, head_dim};
  rope.heads = heads;
  rope.tokens = tokens;
  rope.positions = buffers.positions.as<std::int32_t>();
  rope.slots = buffers.slots.as<std::int64_t>();
  rope.cos = rope.sin = buffers.table.as<float>();
  rope.table_positions = tokens_max;
  keep_chain(bench, "rope+store", tokens, static_cast<double>(bytes_of(rope)), [&](std::uint32_t i) {
    rope.layer = i;
    return rope_and_store(rope, Start::overlapped, stream);
  });
}

void bench_copies(Bench& bench, std::uint32_t count) {
  cuda::KvPool pool{bench.arena.as<std::uint16_t>(), 0, kv_heads, 32, 16, head_dim};
  pool.blocks = static_cast<std::uint32_t>(bench.arena.bytes() / (2 * pool.block_values()));
  std::vector<std::uint32_t> pairs;
  for (std::uint32_t i = 0; i < count; ++i) {
    pairs.push_back(i);
    pairs.push_back(pool.blocks - 1 - i);
  }
  auto on_pairs = must(DeviceBuffer::make(pairs.size() * 4));
  must(on_pairs.upload(pairs.data(), pairs.size() * 4, bench.stream.get()));
  const cuda::BlockCopies copies{pool, reinterpret_cast<const cuda::BlockPair*>(on_pairs.data()), count};
  const double bytes = 4.0 * static_cast<double>(pool.block_values()) * count;
  keep(bench,
       {"block copy", std::to_string(count) + " x 2 MiB", "overlapped",
        time_chain(bench, 4, [&](std::uint32_t) { return copy_blocks(copies, Start::overlapped, bench.stream.get()); }),
        bytes});
}

}  // namespace

void bench_small(Bench& bench) {
  const Stream stream = bench.stream.get();
  Buffers buffers{must(DeviceBuffer::make(std::size_t{tokens_max} * ffn * 4)),
                  must(DeviceBuffer::make(std::size_t{tokens_max} * ffn * 4)), must(DeviceBuffer::make(tokens_max * 4)),
                  must(DeviceBuffer::make(tokens_max * 8)),
                  must(DeviceBuffer::make(std::size_t{tokens_max} * head_dim * 4))};
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
  for (std::uint32_t i = 0; i < tokens_max; ++i) {
    positions.push_back(static_cast<std::int32_t>(i));
    slots.push_back(i);
  }
  must(buffers.a.fill(0x3c, stream));
  must(buffers.b.fill(0x3c, stream));
  must(buffers.table.fill(0x3c, stream));
  must(buffers.positions.upload(positions.data(), positions.size() * 4, stream));
  must(buffers.slots.upload(slots.data(), slots.size() * 8, stream));
  for (const std::uint32_t tokens : {1u, 16u, 256u, 2048u}) bench_rows(bench, tokens, buffers);
  for (const std::uint32_t count : {1u, 16u, 256u}) bench_copies(bench, count);
}

}  // namespace penstock::bench::gpu
