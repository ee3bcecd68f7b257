// Decode attention of Llama-3.1-8B's shape (32 heads over 8 KV heads of 128), eight layers in one pool.
#include <cstdio>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "common/time/random.hpp"
#include "kernels/cuda/decode_attention.hpp"

namespace penstock::bench::gpu {
namespace {

constexpr std::uint32_t layers = 8, heads = 32, kv_heads = 8, head_dim = 128, splits_max = 64;

struct Load {
  std::uint32_t sequences, length;
};
constexpr Load loads[] = {{1, 1024}, {1, 8192}, {1, 32768}, {16, 4096}, {64, 4096}, {256, 1024}, {32, 16384}};

void bench_load(Bench& bench, const Load& load, const kernels::cuda::KvPool& pool) {
  const Stream stream = bench.stream.get();
  const std::uint32_t stride = load.length / 16;
  std::vector<std::int32_t> tables(std::size_t{load.sequences} * stride);
  std::vector<std::int32_t> blocks(pool.blocks);
  Random random(1);
  for (std::uint32_t i = 0; i < pool.blocks; ++i) blocks[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[random.below(i)]);
  for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = blocks[i];
  const std::vector<std::int32_t> lengths(load.sequences, static_cast<std::int32_t>(load.length));
  const std::size_t values = std::size_t{load.sequences} * heads * head_dim;
  auto q = must(DeviceBuffer::make(values * 2)), out = must(DeviceBuffer::make(values * 2));
  auto on_tables = must(DeviceBuffer::make(tables.size() * 4)),
       on_lengths = must(DeviceBuffer::make(lengths.size() * 4));
  auto workspace =
      must(DeviceBuffer::make(kernels::cuda::workspace_bytes(load.sequences, heads, head_dim, splits_max)));
  must(q.fill(0x3c, stream));
  must(workspace.fill(0, stream));
  must(on_tables.upload(tables.data(), tables.size() * 4, stream));
  must(on_lengths.upload(lengths.data(), lengths.size() * 4, stream));
  kernels::cuda::DecodeAttention work;
  work.q = q.as<std::uint16_t>();
  work.out = out.as<std::uint16_t>();
  work.pool = pool;
  work.sequences = load.sequences;
  work.heads = heads;
  work.tables = on_tables.as<std::int32_t>();
  work.table_stride = stride;
  work.lengths = on_lengths.as<std::int32_t>();
  work.scale = 0.088f;
  work.workspace = workspace.data();
  const auto measure = [&](std::uint32_t splits, Start start) {
    work.splits = splits;
    return time_chain(bench, 2 * layers, [&](std::uint32_t i) {
      work.layer = i % layers;
      return kernels::cuda::decode_attention(work, start, stream);
    });
  };
  const double bytes = 4.0 * load.sequences * load.length * kv_heads * head_dim + 4.0 * static_cast<double>(values);
  const std::string size = std::to_string(load.sequences) + " x " + std::to_string(load.length);
  const std::uint32_t chosen =
      kernels::cuda::choose_splits(load.sequences, kv_heads, load.length, bench.device.multiprocessors);
  keep(bench,
       {"attention", size, "rule, " + std::to_string(chosen) + " splits", measure(chosen, Start::overlapped), bytes});
  keep(bench, {"attention", size, "rule, ordered", measure(chosen, Start::ordered), bytes});
  Row best{"attention", size, "", 1e30, bytes};
  for (const std::uint32_t splits : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u, 24u, 32u, 48u, 64u}) {
    if (splits * 16 > load.length) continue;
    const double time = measure(splits, Start::overlapped);
    if (time < best.microseconds) {
      best.microseconds = time;
      best.variant = "best, " + std::to_string(splits) + " splits";
    }
  }
  keep(bench, best);
}

}  // namespace

void bench_attention(Bench& bench) {
  kernels::cuda::KvPool pool{nullptr, 32 * 16384 / 16, kv_heads, layers, 16, head_dim};
  auto memory = must(DeviceBuffer::make(pool.blocks * pool.block_values() * 2));
  must(memory.fill(0x3c, bench.stream.get()));
  pool.base = memory.as<std::uint16_t>();
  for (const Load& load : loads) bench_load(bench, load, pool);
}

}  // namespace penstock::bench::gpu
