// Prefill attention of Llama-3.1-8B's shape (32 heads over 8 KV heads of 128), and with heads of 64 and no sharing:
// whole prompts, chunks of them, and several at once.
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "common/time/random.hpp"
#include "kernels/cuda/prefill_attention.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;

struct Load {
  const char* name;
  std::uint32_t sequences, rows, length, heads, kv_heads, head_dim;
};
constexpr Load loads[] = {
    {"2,048", 1, 2048, 2048, 32, 8, 128},           {"8,192", 1, 8192, 8192, 32, 8, 128},
    {"32,768", 1, 32768, 32768, 32, 8, 128},        {"8 x 1,024", 8, 1024, 1024, 32, 8, 128},
    {"2,048 to 8,192", 1, 2048, 8192, 32, 8, 128},  {"512 to 32,768", 1, 512, 32768, 32, 8, 128},
    {"100 to 32,768", 1, 100, 32768, 32, 8, 128},   {"4 x 100 to 8,192", 4, 100, 8192, 32, 8, 128},
    {"8,192, 32 / 32", 1, 8192, 8192, 32, 32, 128}, {"8,192, dim 64", 1, 8192, 8192, 32, 8, 64}};

void bench_load(Bench& bench, const Load& load) {
  const Stream stream = bench.stream.get();
  const std::uint32_t stride = load.length / 16, blocks = load.sequences * stride;
  cuda::PrefillAttention work;
  work.pool = {nullptr, blocks, load.kv_heads, 1, 16, load.head_dim};
  work.rows = load.sequences * load.rows;
  work.heads = load.heads;
  work.table_stride = stride;
  work.scale = 0.088f;
  work.multiprocessors = bench.device.multiprocessors;
  std::vector<std::int32_t> tables(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) tables[i] = static_cast<std::int32_t>(i);
  Random random(1);
  for (std::size_t i = tables.size(); i > 1; --i) std::swap(tables[i - 1], tables[random.below(i)]);
  std::vector<cuda::PrefillSequence> sequences;
  for (std::uint32_t s = 0; s < load.sequences; ++s) {
    sequences.push_back({static_cast<std::int32_t>(s * load.rows), static_cast<std::int32_t>(load.rows),
                         static_cast<std::int32_t>(load.length), static_cast<std::int32_t>(s)});
  }
  const cuda::PrefillShape shape{load.heads, load.kv_heads, load.head_dim, bench.device.multiprocessors};
  const cuda::PrefillPlan plan = cuda::plan_prefill(sequences, shape);
  const std::uint64_t values = std::uint64_t{work.rows} * load.heads * load.head_dim;
  auto pool = must(DeviceBuffer::make(blocks * work.pool.block_values() * 2)), q = must(DeviceBuffer::make(values * 2)),
       out = must(DeviceBuffer::make(values * 2));
  fill_ordinary(bench, pool);
  fill_ordinary(bench, q);
  const auto on_tables = uploaded(tables, stream);
  const auto on_sequences = uploaded(sequences, stream);
  const auto on_tiles = uploaded(plan.tiles, stream);
  const auto on_merges = uploaded(plan.merges, stream);
  work.q = q.as<std::uint16_t>();
  work.out = out.as<std::uint16_t>();
  work.pool.base = pool.as<std::uint16_t>();
  work.tables = on_tables.as<std::int32_t>();
  work.sequences = on_sequences.as<cuda::PrefillSequence>();
  work.tiles = on_tiles.as<cuda::PrefillTile>();
  work.tile_count = static_cast<std::uint32_t>(plan.tiles.size());
  work.merges = on_merges.as<cuda::PrefillMerge>();
  work.merge_count = static_cast<std::uint32_t>(plan.merges.size());
  work.longest = load.length;
  auto workspace = must(DeviceBuffer::make(cuda::prefill_sizes_max(work.rows, load.sequences, shape).workspace_bytes));
  must(workspace.fill(0, stream));
  work.workspace = workspace.data();
  const double time =
      time_chain(bench, 4, [&](std::uint32_t) { return prefill_attention(work, Start::ordered, stream); });
  const double cached = load.length - load.rows, rows = load.rows;
  const double pairs = load.sequences * (rows * cached + rows * (rows + 1) / 2);
  const double bytes =
      4.0 * load.sequences * load.length * load.kv_heads * load.head_dim + 4.0 * static_cast<double>(values);
  keep(bench, {"prefill", load.name, "paged, causal", time, bytes, 4.0 * pairs * load.heads * load.head_dim});
}

}  // namespace

void bench_prefill(Bench& bench) {
  for (const Load& load : loads) bench_load(bench, load);
}

}  // namespace penstock::bench::gpu
