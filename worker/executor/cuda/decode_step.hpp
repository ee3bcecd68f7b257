// One decode step, from the token ids to the tokens drawn. For up to 16 sequences five kernels a layer: norms are part
// of the products around them, rotation and KV writing part of attention; experts are one in place of the last two. For
// more, eight, with experts up to ten: products are cuBLASLt's, norms and SwiGLU kernels of their own, which give e4m3
// where FP8 weights follow. A rank of several has seven and takes no more than 16: its norms are part of the sums over
// ranks. Its inputs lie in one block of memory that one copy brings to the GPU; its results in host memory that the
// last kernel writes. Host memory is there twice, for steps that take turns: one may be filled while the GPU has not
// come to the other yet, and a row may start from what the other draws. Queues work, waits for nothing and allocates
// nothing after make(), so that a step can be recorded as a graph. Thread: the engine's. Bounds: decode_rows_most
// sequences.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "kernels/cuda/sampler_types.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/cuda/stream.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/executor/cuda/products.hpp"
#include "worker/executor/cuda/step_experts.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {

/// Batches beyond are no decode steps.
constexpr std::uint32_t decode_rows_most = 256;
/// Up to so many rows a step has five kernels a layer.
constexpr std::uint32_t fused_rows_max = kernels::cuda::skinny_tokens_max;

/// The rows that a step of `count` sequences is run with: 1, 2, 4, 8, 16, by 8 up to 128, by 32 beyond.
std::uint32_t decode_rows(std::uint32_t count);

/// What a step of `tokens.size()` rows brings to the GPU. Rows that it does not use have length 0 and are skipped by
/// the sampler.
struct DecodeInputs {
  std::span<kernels::cuda::SampleRow> samples;
  std::span<TokenId> tokens;
  std::span<std::int32_t> lengths;   // with the new token
  std::span<std::int32_t> table_of;  // the sequence's permanent row
};

/// A model on the GPU, as a step reads it; everything outlives the step.
struct DecodeModel {
  const ModelSpec* spec = nullptr;
  const DeviceWeights* weights = nullptr;
  kernels::cuda::KvPool pool;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::uint32_t positions = 0;           // that cos and sin have
  Products* products = nullptr;          // for decode_rows() of the most sequences of a step
  const StepExperts* experts = nullptr;  // the same
  std::uint32_t multiprocessors = 0;
  const kernels::cuda::PeerRank* peers = nullptr;  // null: the model is whole
};

struct DecodeLimits {
  std::uint32_t sequences_max = 0;        // permanent rows
  std::uint32_t sequence_tokens_max = 0;  // of each
  std::uint32_t adjustments_max = 0;      // of logits, over all rows of a step
  std::uint32_t step_sequences_max = 0;   // in one decode step
};

/// Steps take turns: 0, 1, 0.
using Turn = std::uint32_t;

class DecodeStep {
 public:
  static Result<DecodeStep> make(const DecodeModel& model, const DecodeLimits& limits, kernels::cuda::Stream stream);

  std::uint32_t rows_max() const { return rows_max_; }
  /// Host memory of one turn; free for writing while its step is not under way.
  DecodeInputs inputs(Turn turn, std::uint32_t rows) const;
  std::span<kernels::cuda::LogitAdjustment> adjustments(Turn turn) const;
  const kernels::cuda::SampledToken* results(Turn turn) const;
  /// Where a turn's results begin among those of both, for SampleRow::result_offset.
  std::uint32_t result_offset(Turn turn) const { return turn * rows_max_; }
  /// As a token: what row `row` of that turn draws.
  TokenId token_of(Turn turn, std::uint32_t row) const {
    return kernels::cuda::drawn_bit | (result_offset(turn) + row);
  }

  /// Takes over what has changed in a sequence's block table; queue_tables() brings the changes of all. Before the
  /// step, as are the adjustments [0, count) and the inputs.
  Result<void> take_table(Turn turn, std::uint32_t row, std::span<const BlockIndex> blocks,
                          kernels::cuda::Stream stream);
  Result<void> queue_tables(Turn turn, kernels::cuda::Stream stream);
  Result<void> queue_adjustments(Turn turn, std::size_t count, kernels::cuda::Stream stream);
  Result<void> queue_inputs(Turn turn, std::uint32_t rows, kernels::cuda::Stream stream);
  /// The step itself, for `rows` rows with sequences cut into `splits` parts.
  Result<void> queue(std::uint32_t rows, std::uint32_t splits, kernels::cuda::Start start,
                     kernels::cuda::Stream stream);

  /// Of GPU memory.
  std::uint64_t bytes() const { return bytes_; }

 private:
  static DecodeInputs inputs_in(std::byte* memory, std::uint32_t rows);
  static std::size_t input_bytes(std::uint32_t rows);
  Result<void> allocate(const DecodeLimits& limits, kernels::cuda::Stream stream);
  Result<void> queue_layer(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, kernels::cuda::Start start,
                           kernels::cuda::Stream stream) const;
  Result<void> queue_wide_layer(std::uint32_t index, std::uint32_t rows, std::uint32_t splits,
                                kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  Result<void> queue_attention(std::uint32_t index, std::uint32_t rows, std::uint32_t splits,
                               kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  /// Of x_, into normed_.
  kernels::cuda::RmsNorm norm(const kernels::cuda::DeviceBuffer& gain, std::uint32_t rows) const;
  Result<void> queue_head(std::uint32_t rows, kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  Result<void> queue_sampling(std::uint32_t rows, kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  static kernels::cuda::SkinnyProduct product(const kernels::cuda::DeviceBuffer& x,
                                              const kernels::cuda::DeviceBuffer& y, std::uint32_t rows,
                                              std::uint32_t columns, std::uint32_t tokens);
  /// A product that joins the residual path, and the norm behind it, with `gain`: gives the next product's input, for
  /// which apply_norm() is still to be called.
  Result<void> join(const DeviceMatrix& weights, const kernels::cuda::DeviceBuffer& x, std::uint32_t columns,
                    const kernels::cuda::DeviceBuffer& gain, std::uint32_t rows, kernels::cuda::Start start,
                    kernels::cuda::Stream stream) const;
  const kernels::cuda::DeviceBuffer& joined() const { return model_.peers == nullptr ? gained_ : normed_; }
  /// x had its gain in the product before, with `weights` of `columns` columns, which left sums of squares. Nothing for
  /// a rank of several.
  void apply_norm(kernels::cuda::SkinnyProduct& product, const DeviceMatrix& weights, std::uint32_t columns) const;
  /// The same where the FFN of `before` was the last that joined the residual path.
  void apply_ffn_norm(kernels::cuda::SkinnyProduct& product, const DeviceLayer& before) const;
  /// The experts of a layer behind a product with `layer.output`, and the norm behind them, with `gain`.
  Result<void> join_experts(const DeviceLayer& layer, const kernels::cuda::DeviceBuffer& gain, std::uint32_t rows,
                            kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  DecodeInputs device_inputs(std::uint32_t rows) const { return inputs_in(device_inputs_.as<std::byte>(), rows); }

  DecodeModel model_;
  std::uint32_t rows_max_ = 0, table_stride_ = 0, adjustments_max_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t changes_ = 0;  // of block tables, in host_changes_
  kernels::cuda::PinnedBuffer host_inputs_, host_adjustments_, host_tables_, host_changes_, results_;
  kernels::cuda::DeviceBuffer device_inputs_, device_adjustments_, device_tables_, device_changes_, drawn_;
  kernels::cuda::DeviceBuffer x_, normed_, gained_, squares_, share_, qkv_, attended_, activated_, logits_, workspace_;
};

}  // namespace penstock::worker
