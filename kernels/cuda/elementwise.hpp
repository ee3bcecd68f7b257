// Small passes over rows: SwiGLU, rows of the embedding, copies of KV blocks, changes of tables, FP8 weights as bf16.
// Each moves every byte once. Any thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/skinny_fp8.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

/// y[t][i] = silu(x[t][i]) * x[t][columns + i], in float until y.
struct SwiGlu {
  const Bf16* x = nullptr;  // [tokens][2 * columns], dense
  Bf16* y = nullptr;        // [tokens][columns], dense
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;  // a multiple of 8
};
Result<void> swiglu(const SwiGlu& work, Start start, Stream stream);

/// y[t] = table[ids[t]]; ids out of range give zeros.
struct EmbeddingRows {
  const Bf16* table = nullptr;         // [vocabulary][columns], dense
  const std::uint32_t* ids = nullptr;  // [tokens]
  Bf16* y = nullptr;                   // [tokens][columns], dense
  std::uint32_t tokens = 0;
  std::uint32_t columns = 0;  // a multiple of 8
  std::uint32_t vocabulary = 0;
  const std::uint32_t* drawn = nullptr;  // what ids with drawn_bit are places in; null: there are none
};
Result<void> gather_embedding(const EmbeddingRows& work, Start start, Stream stream);

struct BlockPair {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};
/// Copies whole blocks within a pool. Pairs out of range do nothing; no block may be both source and target.
struct BlockCopies {
  KvPool pool;
  const BlockPair* pairs = nullptr;  // [count]
  std::uint32_t count = 0;
};
Result<void> copy_blocks(const BlockCopies& work, Start start, Stream stream);

struct WordChange {
  std::uint32_t place = 0;
  std::int32_t value = 0;
};
/// words[place] = value for each change; places out of range do nothing, and no two changes may have the same.
struct WordChanges {
  std::int32_t* words = nullptr;  // [size]
  std::uint64_t size = 0;
  const WordChange* changes = nullptr;  // [count]
  std::uint32_t count = 0;
};
Result<void> change_words(const WordChanges& work, Start start, Stream stream);

/// y = weights, each rounded once, for products that have no kernel for them.
struct WidenedWeights {
  Fp8Weights weights;  // [rows][columns]
  Bf16* y = nullptr;   // the same, dense
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;  // a multiple of 16
};
Result<void> widen_weights(const WidenedWeights& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
