// One decode step for up to 16 sequences, from the token ids to the tokens drawn: five kernels a layer. Norms are part
// of the products around them, rotation and KV writing part of attention. A rank of several has seven: the norms are
// part of the sums over ranks. Its inputs lie in one block of memory that
// one copy brings to the GPU; its results in host memory that the last kernel writes. Queues work, waits for nothing
// and allocates nothing after make(), so that a step can be recorded as a graph. Thread: the engine's.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/base/result.hpp"
#include "common/base/types.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/kv_layout.hpp"
#include "kernels/cuda/peer_rank.hpp"
#include "kernels/cuda/sampler_types.hpp"
#include "kernels/cuda/skinny_gemm.hpp"
#include "kernels/cuda/stream.hpp"
#include "worker/executor/cuda/device_weights.hpp"
#include "worker/model/model_spec.hpp"

namespace penstock::worker {

constexpr std::uint32_t decode_rows_max = kernels::cuda::skinny_tokens_max;

/// What every step brings to the GPU. Rows that a step does not use have length 0 and are skipped by the sampler.
struct DecodeInputs {
  std::array<kernels::cuda::SampleRow, decode_rows_max> samples;
  std::array<TokenId, decode_rows_max> tokens{};
  std::array<std::int32_t, decode_rows_max> lengths{};   // with the new token
  std::array<std::int32_t, decode_rows_max> table_of{};  // the sequence's permanent row
};

/// A model on the GPU, as a step reads it; everything outlives the step.
struct DecodeModel {
  const ModelSpec* spec = nullptr;
  const DeviceWeights* weights = nullptr;
  kernels::cuda::KvPool pool;
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::uint32_t positions = 0;                     // that cos and sin have
  const kernels::cuda::PeerRank* peers = nullptr;  // null: the model is whole
};

struct DecodeLimits {
  std::uint32_t sequences_max = 0;        // permanent rows
  std::uint32_t sequence_tokens_max = 0;  // of each
  std::uint32_t adjustments_max = 0;      // of logits, over all rows of a step
};

class DecodeStep {
 public:
  static Result<DecodeStep> make(const DecodeModel& model, const DecodeLimits& limits, kernels::cuda::Stream stream);

  // Host memory; free for writing while no step is under way.
  DecodeInputs& inputs() const { return *host_inputs_.as<DecodeInputs>(); }
  kernels::cuda::LogitAdjustment* adjustments() const { return host_adjustments_.as<kernels::cuda::LogitAdjustment>(); }
  const kernels::cuda::SampledToken* results() const { return results_.as<kernels::cuda::SampledToken>(); }

  /// Brings what has changed in a sequence's block table, and adjustments [0, count); before the step.
  Result<void> queue_table(std::uint32_t row, std::span<const BlockIndex> blocks, kernels::cuda::Stream stream);
  Result<void> queue_adjustments(std::size_t count, kernels::cuda::Stream stream);
  /// The step itself, for `rows` rows with sequences cut into `splits` parts.
  Result<void> queue(std::uint32_t rows, std::uint32_t splits, kernels::cuda::Start start,
                     kernels::cuda::Stream stream);

  /// Of GPU memory.
  std::uint64_t bytes() const { return bytes_; }

 private:
  Result<void> allocate(const DecodeLimits& limits, kernels::cuda::Stream stream);
  Result<void> queue_layer(std::uint32_t index, std::uint32_t rows, std::uint32_t splits, kernels::cuda::Start start,
                           kernels::cuda::Stream stream) const;
  Result<void> queue_attention(std::uint32_t index, std::uint32_t rows, std::uint32_t splits,
                               kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  Result<void> queue_head(std::uint32_t rows, kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  kernels::cuda::SkinnyProduct product(const kernels::cuda::DeviceBuffer& weights, const kernels::cuda::DeviceBuffer& x,
                                       const kernels::cuda::DeviceBuffer& y, std::uint32_t rows, std::uint32_t columns,
                                       std::uint32_t tokens) const;
  /// A product that joins the residual path, and the norm behind it, with `gain`: gives the next product's input, for
  /// which apply_norm() is still to be called.
  Result<void> join(const kernels::cuda::DeviceBuffer& weights, const kernels::cuda::DeviceBuffer& x,
                    std::uint32_t columns, const kernels::cuda::DeviceBuffer& gain, std::uint32_t rows,
                    kernels::cuda::Start start, kernels::cuda::Stream stream) const;
  const kernels::cuda::DeviceBuffer& joined() const { return model_.peers == nullptr ? gained_ : normed_; }
  /// x had its gain in the product before, of `columns` columns, which left sums of squares. Nothing for a rank of
  /// several.
  void apply_norm(kernels::cuda::SkinnyProduct& product, std::uint32_t columns) const;
  template <class T>
  T* input(std::size_t offset) const {
    return reinterpret_cast<T*>(device_inputs_.as<std::byte>() + offset);
  }

  DecodeModel model_;
  std::uint32_t table_stride_ = 0;
  std::uint64_t bytes_ = 0;
  kernels::cuda::PinnedBuffer host_inputs_, host_adjustments_, host_tables_, results_;
  kernels::cuda::DeviceBuffer device_inputs_, device_adjustments_, device_tables_;
  kernels::cuda::DeviceBuffer x_, normed_, gained_, squares_, share_, qkv_, attended_, activated_, logits_, workspace_;
};

}  // namespace penstock::worker
