// Whole prompts of Llama-3.1-8B's shape from the embedding to the logits of the last token, as one graph: what products
// and attention reach together. One sequence, nothing cached before, in chunks or in one piece.
#include <cstdio>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "bench/kernels/llama_8b.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/prefill_attention.hpp"
#include "kernels/cuda/rope.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;
using cuda::Bf16;

DeviceBuffer room(std::uint64_t values) {
  return must(DeviceBuffer::make(values * sizeof(Bf16)));
}

/// A part of the prompt: what a step gets.
struct Chunk {
  std::uint32_t first, rows;
  DeviceBuffer positions, slots, sequences, tiles, merges;
  std::uint32_t tile_count, merge_count;
};

struct Prompt {
  const Bf16* weights = nullptr;
  std::uint32_t tokens, chunk_tokens;
  cuda::KvPool pool;
  DeviceBuffer pool_memory, tables, ids, rotations;
  DeviceBuffer x, normed, joint, q, attended, gate_up, activated, logits, workspace;
  std::vector<Chunk> chunks;
  std::uint32_t multiprocessors;
  cuda::Gemm* gemm = nullptr;
};

Chunk make_chunk(std::uint32_t first, std::uint32_t rows, const cuda::PrefillShape& shape, Stream stream) {
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
  for (std::uint32_t t = first; t < first + rows; ++t) {
    positions.push_back(static_cast<std::int32_t>(t));
    slots.push_back(t);
  }
  const std::vector<cuda::PrefillSequence> sequences{
      {0, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(first + rows), 0}};
  const cuda::PrefillPlan plan = cuda::plan_prefill(sequences, shape);
  return {first,
          rows,
          uploaded(positions, stream),
          uploaded(slots, stream),
          uploaded(sequences, stream),
          uploaded(plan.tiles, stream),
          uploaded(plan.merges, stream),
          static_cast<std::uint32_t>(plan.tiles.size()),
          static_cast<std::uint32_t>(plan.merges.size())};
}

Prompt make_prompt(Bench& bench, std::uint32_t tokens, std::uint32_t chunk_tokens) {
  const Stream stream = bench.stream.get();
  Prompt prompt;
  prompt.weights = bench.arena.as<Bf16>();
  prompt.tokens = tokens;
  prompt.chunk_tokens = chunk_tokens;
  prompt.multiprocessors = bench.device.multiprocessors;
  prompt.pool = {nullptr, tokens / 16, kv_heads, layers, 16, head_dim};
  prompt.pool_memory = room(prompt.pool.blocks * prompt.pool.block_values());
  fill_ordinary(bench, prompt.pool_memory);
  prompt.pool.base = prompt.pool_memory.as<Bf16>();
  std::vector<std::int32_t> table;
  for (std::uint32_t b = 0; b < prompt.pool.blocks; ++b) table.push_back(static_cast<std::int32_t>(b));
  prompt.tables = uploaded(table, stream);
  std::vector<std::uint32_t> ids;
  for (std::uint32_t t = 0; t < tokens; ++t) ids.push_back(t * 7919 % vocabulary);
  prompt.ids = uploaded(ids, stream);
  prompt.rotations = uploaded(std::vector<float>(std::size_t{tokens} * head_dim / 2, 0.7f), stream);
  for (DeviceBuffer* buffer : {&prompt.x, &prompt.normed, &prompt.q, &prompt.attended}) {
    *buffer = room(std::uint64_t{chunk_tokens} * hidden);
  }
  prompt.joint = room(std::uint64_t{chunk_tokens} * qkv);
  prompt.gate_up = room(std::uint64_t{chunk_tokens} * 2 * ffn);
  prompt.activated = room(std::uint64_t{chunk_tokens} * ffn);
  const cuda::PrefillShape shape{heads, kv_heads, head_dim, prompt.multiprocessors};
  prompt.workspace = must(DeviceBuffer::make(cuda::prefill_sizes_max(chunk_tokens, 1, shape).workspace_bytes));
  must(prompt.workspace.fill(0, stream));
  prompt.logits = room(std::uint64_t{vocabulary} * 2);
  for (std::uint32_t first = 0; first < tokens; first += chunk_tokens) {
    prompt.chunks.push_back(make_chunk(first, std::min(chunk_tokens, tokens - first), shape, stream));
  }
  return prompt;
}

struct Matrix {
  const Bf16* weights;
  std::uint32_t rows, columns;
};

Result<void> multiply(const Prompt& prompt, const Matrix& matrix, const DeviceBuffer& x, const DeviceBuffer& y,
                      std::uint32_t tokens, bool adds, Stream stream) {
  cuda::GemmProduct p;
  p.weights = matrix.weights;
  p.x = x.as<Bf16>();
  p.y = y.data();
  p.rows = matrix.rows;
  p.columns = matrix.columns;
  p.tokens = tokens;
  p.x_stride = matrix.columns;
  p.y_stride = matrix.rows;
  p.residual = adds ? y.as<Bf16>() : nullptr;
  return prompt.gemm->run(p, stream);
}

Result<void> attend(const Prompt& prompt, const Chunk& chunk, std::uint32_t layer, Stream stream) {
  cuda::RopeAndStore rope;
  rope.qkv = prompt.joint.as<Bf16>();
  rope.qkv_stride = qkv;
  rope.q = prompt.q.as<Bf16>();
  rope.pool = prompt.pool;
  rope.layer = layer;
  rope.heads = heads;
  rope.tokens = chunk.rows;
  rope.positions = chunk.positions.as<std::int32_t>();
  rope.slots = chunk.slots.as<std::int64_t>();
  rope.cos = rope.sin = prompt.rotations.as<float>();
  rope.table_positions = prompt.tokens;
  PENSTOCK_TRY_VOID(rope_and_store(rope, Start::overlapped, stream));
  cuda::PrefillAttention work;
  work.q = prompt.q.as<Bf16>();
  work.out = prompt.attended.as<Bf16>();
  work.pool = prompt.pool;
  work.layer = layer;
  work.rows = chunk.rows;
  work.heads = heads;
  work.tables = prompt.tables.as<std::int32_t>();
  work.table_stride = prompt.pool.blocks;
  work.sequences = chunk.sequences.as<cuda::PrefillSequence>();
  work.tiles = chunk.tiles.as<cuda::PrefillTile>();
  work.tile_count = chunk.tile_count;
  work.workspace = prompt.workspace.data();
  work.merges = chunk.merges.as<cuda::PrefillMerge>();
  work.merge_count = chunk.merge_count;
  work.longest = chunk.first + chunk.rows;
  work.scale = 0.088f;
  work.multiprocessors = prompt.multiprocessors;
  return prefill_attention(work, Start::overlapped, stream);
}

Result<void> run_layer(const Prompt& prompt, const Chunk& chunk, std::uint32_t layer, Stream stream) {
  const Bf16* const joint = prompt.weights + layer * layer_values;
  const Bf16* const output = joint + std::uint64_t{qkv} * hidden;
  const Bf16* const gate_up = output + std::uint64_t{hidden} * hidden;
  const Bf16* const down = gate_up + 2ull * ffn * hidden;
  const std::uint32_t rows = chunk.rows;
  const cuda::RmsNorm norm{prompt.x.as<Bf16>(), nullptr, prompt.weights, prompt.normed.as<Bf16>(), rows, hidden, 1e-5f};
  PENSTOCK_TRY_VOID(rms_norm(norm, Start::overlapped, stream));
  PENSTOCK_TRY_VOID(multiply(prompt, {joint, qkv, hidden}, prompt.normed, prompt.joint, rows, false, stream));
  PENSTOCK_TRY_VOID(attend(prompt, chunk, layer, stream));
  PENSTOCK_TRY_VOID(multiply(prompt, {output, hidden, hidden}, prompt.attended, prompt.x, rows, true, stream));
  PENSTOCK_TRY_VOID(rms_norm(norm, Start::overlapped, stream));
  PENSTOCK_TRY_VOID(multiply(prompt, {gate_up, 2 * ffn, hidden}, prompt.normed, prompt.gate_up, rows, false, stream));
  const cuda::SwiGlu activation{prompt.gate_up.as<Bf16>(), prompt.activated.as<Bf16>(), rows, ffn};
  PENSTOCK_TRY_VOID(swiglu(activation, Start::overlapped, stream));
  return multiply(prompt, {down, hidden, ffn}, prompt.activated, prompt.x, rows, true, stream);
}

Result<void> run_prompt(const Prompt& prompt, Stream stream) {
  for (const Chunk& chunk : prompt.chunks) {
    const cuda::EmbeddingRows rows{
        prompt.weights, prompt.ids.as<std::uint32_t>() + chunk.first, prompt.x.as<Bf16>(), chunk.rows, hidden,
        vocabulary};
    PENSTOCK_TRY_VOID(gather_embedding(rows, Start::ordered, stream));
    for (std::uint32_t layer = 0; layer < layers; ++layer) PENSTOCK_TRY_VOID(run_layer(prompt, chunk, layer, stream));
  }
  return multiply(prompt, {prompt.weights + layers * layer_values, vocabulary, hidden}, prompt.x, prompt.logits, 1,
                  false, stream);
}

/// Microseconds of a prompt whose kernels the host starts one by one, after a rest: what a worker that was idle does.
double time_once(Bench& bench, const Prompt& prompt) {
  auto watch = must(kernels::cuda::Stopwatch::make());
  must(bench.stream.wait());
  must(watch.start(bench.stream.get()));
  must(run_prompt(prompt, bench.stream.get()));
  must(watch.stop(bench.stream.get()));
  return must(watch.seconds()) * 1e6;
}

}  // namespace

void bench_prompt(Bench& bench) {
  if (bench.arena.bytes() < 2 * weight_values) {
    std::printf("prompt: needs --arena-gib 15 or more\n");
    return;
  }
  auto gemm = must(cuda::Gemm::make());
  struct Load {
    std::uint32_t tokens, chunk;
  };
  for (const Load& load : {Load{512, 512}, {2048, 2048}, {8192, 8192}, {8192, 2048}, {8192, 512}, {32768, 8192}}) {
    Prompt prompt = make_prompt(bench, load.tokens, load.chunk);
    prompt.gemm = &gemm;
    const double tokens = load.tokens, pairs = tokens * (tokens + 1) / 2;
    const double operations = 2.0 * static_cast<double>(layers * layer_values) * tokens +
                              4.0 * layers * pairs * heads * head_dim + 2.0 * vocabulary * hidden;
    must(run_prompt(prompt, bench.stream.get()));  // loads kernels
    const double time = time_chain(bench, 1, [&](std::uint32_t) { return run_prompt(prompt, bench.stream.get()); });
    keep(bench, {"prompt 8B bf16", std::to_string(load.tokens), "chunks of " + std::to_string(load.chunk), time,
                 2.0 * weight_values * static_cast<double>(prompt.chunks.size()), operations});
    std::printf("  %.0f tokens/s\n", tokens / time * 1e6);
    keep(bench,
         {"prompt 8B bf16", std::to_string(load.tokens), "chunks of " + std::to_string(load.chunk) + ", no graph",
          time_once(bench, prompt), 2.0 * weight_values * static_cast<double>(prompt.chunks.size()), operations});
  }
}

}  // namespace penstock::bench::gpu
