// Whole decode steps of Llama-3.1-8B's shape from the embedding to the logits, as one graph: what the kernels reach
// together, each waiting for the one before. Without sampling, and every sequence has the same context. More than 16
// sequences are multiplied by cuBLASLt. With FP8, layers have weights of one byte; embedding and head stay bf16.
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "bench/kernels/llama_8b.hpp"
#include "kernels/cuda/decode_attention.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/rope.hpp"
#include "kernels/cuda/skinny_fp8.hpp"
#include "kernels/cuda/skinny_gemm.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;
using cuda::Bf16;

struct Step {
  std::uint32_t tokens, context;
  const Bf16* weights = nullptr;  // of all layers ...
  cuda::Fp8Weights codes;         // ... or these, if not null
  const Bf16* head = nullptr;     // serves as embedding and as weights of norms, too
  cuda::KvPool pool;
  DeviceBuffer pool_memory, ids, positions, slots, lengths, tables, rotations;
  DeviceBuffer x, normed, joint, q, attended, gate_up, activated, logits, workspace;
  cuda::Gemm* gemm = nullptr;
  Start start = Start::overlapped;
};

std::vector<std::int32_t> repeated(std::uint32_t count, std::int32_t value) {
  return std::vector<std::int32_t>(count, value);
}

DeviceBuffer filled(std::uint64_t bytes, std::uint8_t value, Stream stream) {
  DeviceBuffer buffer = must(DeviceBuffer::make(bytes));
  must(buffer.fill(value, stream));
  return buffer;
}

Step make_step(const Bench& bench, std::uint32_t tokens, std::uint32_t context) {
  const Stream stream = bench.stream.get();
  const std::uint32_t blocks = (context + 15) / 16;
  Step step;
  step.tokens = tokens;
  step.context = context;
  step.weights = bench.arena.as<Bf16>();
  step.head = step.weights + layers * layer_values;
  step.pool = {nullptr, blocks * tokens, kv_heads, layers, 16, head_dim};
  step.pool_memory = filled(step.pool.blocks * step.pool.block_values() * 2, 0x3c, stream);
  step.pool.base = step.pool_memory.as<Bf16>();
  const auto last = static_cast<std::int32_t>(context - 1);
  step.ids = uploaded(repeated(tokens, 7), stream);
  step.positions = uploaded(repeated(tokens, last), stream);
  step.lengths = uploaded(repeated(tokens, last + 1), stream);
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> tables;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    for (std::uint32_t b = 0; b < blocks; ++b) tables.push_back(static_cast<std::int32_t>(b * tokens + t));
    slots.push_back(std::int64_t{tables.back()} * 16 + last % 16);
  }
  step.slots = uploaded(slots, stream);
  step.tables = uploaded(tables, stream);
  step.rotations = filled(std::uint64_t{context} * head_dim * 2, 0x3c, stream);
  for (DeviceBuffer* buffer : {&step.x, &step.normed, &step.joint, &step.q, &step.attended, &step.activated}) {
    *buffer = filled(std::uint64_t{tokens} * ffn * 2, 0x3c, stream);
  }
  step.gate_up = filled(std::uint64_t{tokens} * 2 * ffn * 2, 0x3c, stream);
  step.logits = filled(std::uint64_t{tokens} * vocabulary * 4, 0, stream);
  step.workspace = filled(cuda::workspace_bytes(tokens, heads, head_dim, 64), 0, stream);
  return step;
}

/// `first`: the matrix's first value among those of all layers.
cuda::SkinnyProduct product(const Step& step, std::uint64_t first, const DeviceBuffer& x, const DeviceBuffer& y,
                            std::uint32_t rows, std::uint32_t columns) {
  cuda::SkinnyProduct p;
  p.weights = step.weights + first;
  p.x = x.as<Bf16>();
  p.y = y.data();
  p.rows = rows;
  p.columns = columns;
  p.tokens = step.tokens;
  p.x_stride = columns;
  p.y_stride = p.residual_stride = rows;
  return p;
}

cuda::Fp8Weights codes_of(const Step& step, const cuda::SkinnyProduct& p) {
  cuda::Fp8Weights codes = step.codes;
  codes.values += p.weights - step.weights;
  return codes;
}

Result<void> run_bf16(const Step& step, const cuda::SkinnyProduct& p, Stream stream) {
  if (p.tokens <= cuda::skinny_tokens_max) {
    return skinny_gemm(p, cuda::choose_skinny(p.rows, p.columns, p.tokens), step.start, stream);
  }
  return step.gemm->run(
      {p.weights, p.x, p.y, p.rows, p.columns, p.tokens, p.x_stride, p.y_stride, p.output, p.bias, p.residual}, stream);
}

Result<void> run_product(const Step& step, const cuda::SkinnyProduct& p, Stream stream) {
  if (step.codes.values == nullptr) return run_bf16(step, p, stream);
  return skinny_fp8(p, codes_of(step, p), cuda::choose_skinny_fp8(p.rows, p.columns, p.tokens), step.start, stream);
}

Result<void> run_swiglu(const Step& step, std::uint64_t first, Stream stream) {
  cuda::SkinnyProduct p = product(step, first, step.normed, step.activated, 2 * ffn, hidden);
  if (step.tokens > cuda::skinny_tokens_max) {
    p.y = step.gate_up.data();
    PENSTOCK_TRY_VOID(run_product(step, p, stream));
    return swiglu({step.gate_up.as<Bf16>(), step.activated.as<Bf16>(), step.tokens, ffn}, step.start, stream);
  }
  p.y_stride = ffn;
  if (step.codes.values == nullptr) {
    return skinny_gemm_swiglu(p, cuda::choose_skinny(2 * ffn, hidden, step.tokens), step.start, stream);
  }
  const cuda::SkinnyConfig config = cuda::choose_skinny_fp8(2 * ffn, hidden, step.tokens);
  return skinny_fp8_swiglu(p, codes_of(step, p), config, step.start, stream);
}

Result<void> run_attention(const Step& step, std::uint32_t layer, std::uint32_t splits, Stream stream) {
  cuda::RopeAndStore rope;
  rope.qkv = step.joint.as<Bf16>();
  rope.qkv_stride = qkv;
  rope.q = step.q.as<Bf16>();
  rope.pool = step.pool;
  rope.layer = layer;
  rope.heads = heads;
  rope.tokens = step.tokens;
  rope.positions = step.positions.as<std::int32_t>();
  rope.slots = step.slots.as<std::int64_t>();
  rope.cos = rope.sin = step.rotations.as<float>();
  rope.table_positions = step.context;
  PENSTOCK_TRY_VOID(rope_and_store(rope, step.start, stream));
  cuda::DecodeAttention work;
  work.q = step.q.as<Bf16>();
  work.out = step.attended.as<Bf16>();
  work.pool = step.pool;
  work.layer = layer;
  work.sequences = step.tokens;
  work.heads = heads;
  work.tables = step.tables.as<std::int32_t>();
  work.table_stride = (step.context + 15) / 16;
  work.lengths = step.lengths.as<std::int32_t>();
  work.scale = 0.088f;
  work.splits = splits;
  work.workspace = step.workspace.data();
  return decode_attention(work, step.start, stream);
}

Result<void> run_layer(const Step& step, std::uint32_t layer, std::uint32_t splits, Stream stream) {
  const std::uint64_t joint = layer * layer_values;
  const std::uint64_t output = joint + std::uint64_t{qkv} * hidden;
  const std::uint64_t gate_up = output + std::uint64_t{hidden} * hidden;
  const std::uint64_t down = gate_up + 2ull * ffn * hidden;
  const cuda::RmsNorm norm{step.x.as<Bf16>(), nullptr, step.head, step.normed.as<Bf16>(), step.tokens, hidden, 1e-5f};
  PENSTOCK_TRY_VOID(rms_norm(norm, step.start, stream));
  PENSTOCK_TRY_VOID(run_product(step, product(step, joint, step.normed, step.joint, qkv, hidden), stream));
  PENSTOCK_TRY_VOID(run_attention(step, layer, splits, stream));
  cuda::SkinnyProduct p = product(step, output, step.attended, step.x, hidden, hidden);
  p.residual = step.x.as<Bf16>();
  PENSTOCK_TRY_VOID(run_product(step, p, stream));
  PENSTOCK_TRY_VOID(rms_norm(norm, step.start, stream));
  PENSTOCK_TRY_VOID(run_swiglu(step, gate_up, stream));
  p = product(step, down, step.activated, step.x, hidden, ffn);
  p.residual = step.x.as<Bf16>();
  return run_product(step, p, stream);
}

Result<void> run_step(const Step& step, std::uint32_t splits, Stream stream) {
  const cuda::EmbeddingRows rows{step.head, step.ids.as<std::uint32_t>(), step.x.as<Bf16>(), step.tokens, hidden,
                                 vocabulary};
  PENSTOCK_TRY_VOID(gather_embedding(rows, Start::ordered, stream));
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    PENSTOCK_TRY_VOID(run_layer(step, layer, splits, stream));
  }
  const cuda::RmsNorm norm{step.x.as<Bf16>(), nullptr, step.head, step.normed.as<Bf16>(), step.tokens, hidden, 1e-5f};
  PENSTOCK_TRY_VOID(rms_norm(norm, step.start, stream));
  cuda::SkinnyProduct p = product(step, 0, step.normed, step.logits, vocabulary, hidden);
  p.weights = step.head;
  p.output = cuda::OutputType::f32;
  return run_bf16(step, p, stream);
}

void time_step(Bench& bench, Step& step, const std::string& kernel, const std::string& variant, double weight_bytes) {
  const std::uint32_t splits = cuda::choose_splits(step.tokens, kv_heads, step.context, bench.device.multiprocessors);
  const double bytes = weight_bytes + 4.0 * step.tokens * step.context * kv_heads * head_dim * layers;
  must(run_step(step, splits, bench.stream.get()));  // loads kernels, which no recording may do
  for (const Start start : {Start::overlapped, Start::ordered}) {
    step.start = start;
    const double time = time_chain(bench, 1, [&](std::uint32_t) { return run_step(step, splits, bench.stream.get()); });
    keep(bench, {kernel, std::to_string(step.tokens) + " x " + std::to_string(step.context),
                 variant + (start == Start::overlapped ? "overlapped" : "ordered"), time, bytes});
  }
}

}  // namespace

void bench_step(Bench& bench) {
  if (bench.arena.bytes() < 2 * weight_values) {
    std::printf("step: needs --arena-gib 15 or more\n");
    return;
  }
  auto gemm = must(cuda::Gemm::make());
  for (const std::uint32_t tokens : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 256u}) {
    for (const std::uint32_t context : {192u, 1024u}) {
      Step step = make_step(bench, tokens, context);
      step.gemm = &gemm;
      time_step(bench, step, "step 8B bf16", "", 2.0 * weight_values);
    }
  }
}

void bench_step_fp8(Bench& bench) {
  constexpr std::uint64_t code_bytes = layers * layer_values, head_bytes = 2 * head_values;
  if (bench.arena.bytes() < code_bytes + head_bytes) {
    std::printf("fp8 step: needs --arena-gib 8 or more\n");
    return;
  }
  const DeviceBuffer scales = filled(sizeof(float) * 2 * ffn, 0x3b, bench.stream.get());  // 0.0029
  DeviceBuffer head = must(DeviceBuffer::make(head_bytes));
  fill_ordinary(bench, head);
  for (const std::uint32_t tokens : {1u, 4u, 8u, 16u}) {
    for (const std::uint32_t context : {192u, 1024u}) {
      for (const cuda::Fp8Scales kind : {cuda::Fp8Scales::row, cuda::Fp8Scales::block}) {
        Step step = make_step(bench, tokens, context);
        step.codes = {bench.arena.as<std::uint8_t>(), scales.as<float>(), kind};
        step.head = head.as<Bf16>();
        const std::string variant = kind == cuda::Fp8Scales::row ? "rows, " : "blocks, ";
        time_step(bench, step, "step 8B fp8", variant, static_cast<double>(code_bytes + head_bytes));
      }
    }
  }
}

}  // namespace penstock::bench::gpu
