#include "worker/executor/cuda/cuda_executor.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/check.hpp"
#include "worker/core/sampling/sampler.hpp"
#include "worker/executor/cpu/step_plan.hpp"
#include "worker/executor/cuda/device_model.hpp"

namespace penstock::worker {
namespace {

constexpr std::uint32_t block_tokens = 16;
constexpr std::size_t logits_bytes_max = 64u << 20;

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(std::shared_ptr<const LoadedModel> loaded, DeviceModel model, const ExecutorLimits& limits,
               const DeviceModelLimits& device_limits)
      : loaded_(std::move(loaded)),
        model_(std::move(model)),
        limits_(limits),
        device_limits_(device_limits),
        sampler_(limits.vocabulary_size) {}

  const ExecutorLimits& limits() const override { return limits_; }

  /// Without a base: the pool is not memory that a processor can read.
  KvPoolView kv_pool() override {
    const ModelSpec& spec = loaded_->spec;
    return {nullptr,
            device_limits_.kv_blocks,
            {spec.kv_heads, spec.layers, block_tokens, spec.head_dim, KvDtype::bf16},
            -1};
  }

  void launch(const StepBatch& batch) override {
    PENSTOCK_CHECK(!is_launched_, "a step is in flight already");
    make_plan(batch, {limits_, device_limits_.kv_blocks, block_tokens}, plan_);
    is_launched_ = true;
    started_ = start();
  }

  Result<StepResult> collect() override {
    PENSTOCK_CHECK(is_launched_, "no step in flight");
    is_launched_ = false;
    if (!started_) return started_.error();
    const std::size_t rows_max = device_limits_.logits_rows_max;
    for (std::size_t first = 0; first < plan_.logits.size(); first += rows_max) {
      PENSTOCK_TRY_VOID(sample_rows(first, std::min(rows_max, plan_.logits.size() - first)));
    }
    return std::move(plan_.result);
  }

 private:
  Result<void> start() {
    for (const BlockCopy& copy : plan_.batch.copies) PENSTOCK_TRY_VOID(model_.copy_block(copy.from, copy.to));
    if (plan_.rows() == 0) return {};
    fill_step();
    return model_.forward(step_);
  }

  /// Every token of the batch as a row.
  void fill_step() {
    const std::uint32_t stride = model_.table_stride();
    step_.tokens = plan_.tokens;
    step_.positions.clear();
    step_.slots.clear();
    step_.lengths.clear();
    step_.table_of.clear();
    step_.tables.assign(plan_.batch.sequences.size() * stride, -1);
    for (std::size_t i = 0; i < plan_.batch.sequences.size(); ++i) {
      const SequenceStep& sequence = plan_.batch.sequences[i];
      for (std::size_t b = 0; b < std::min<std::size_t>(sequence.blocks.size(), stride); ++b) {
        step_.tables[i * stride + b] = static_cast<std::int32_t>(sequence.blocks[b]);
      }
      for (std::uint32_t t = 0; t < sequence.tokens.size(); ++t) {
        const std::uint32_t position = sequence.position + t;
        const std::int64_t block = sequence.blocks[position / block_tokens];
        step_.positions.push_back(static_cast<std::int32_t>(position));
        step_.slots.push_back(block * block_tokens + position % block_tokens);
        step_.lengths.push_back(static_cast<std::int32_t>(position + 1));
        step_.table_of.push_back(static_cast<std::int32_t>(i));
      }
    }
  }

  Result<void> sample_rows(std::size_t first, std::size_t count) {
    wanted_.clear();
    for (std::size_t i = 0; i < count; ++i) wanted_.push_back(plan_.logits[first + i].row);
    PENSTOCK_TRY_VOID(model_.logits(wanted_, logits_));
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t vocabulary = limits_.vocabulary_size;
      sample(plan_.logits[first + i], std::span(logits_).subspan(i * vocabulary, vocabulary));
    }
    return {};
  }

  void sample(const LogitsRow& entry, std::span<const float> logits) {
    SequenceResult& result = plan_.result.sequences[entry.sequence];
    if (result.not_finite) return;
    const SequenceStep& step = plan_.batch.sequences[entry.sequence];
    const bool is_finite = std::all_of(logits.begin(), logits.end(), [](float value) { return std::isfinite(value); });
    if (is_finite && entry.scored_token) {
      result.prompt_logprobs[entry.score_slot] = sampler_.score(logits, *entry.scored_token, *step.prompt_logprobs);
    }
    SequenceResult drawn;
    if (is_finite && entry.draws) drawn = sampler_.sample(logits, *step.sample);
    if (!is_finite || drawn.not_finite) {
      result = SequenceResult();
      result.not_finite = true;
      return;
    }
    if (!entry.draws) return;
    result.token = drawn.token;
    result.logprobs = std::move(drawn.logprobs);
  }

  std::shared_ptr<const LoadedModel> loaded_;  // shared with whoever serves the model card
  DeviceModel model_;
  ExecutorLimits limits_;
  DeviceModelLimits device_limits_;
  Sampler sampler_;
  StepPlan plan_;
  DeviceStep step_;
  std::vector<std::uint32_t> wanted_;
  std::vector<float> logits_;
  Result<void> started_;
  bool is_launched_ = false;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_cuda_executor(std::shared_ptr<const LoadedModel> model,
                                                     const CudaExecutorOptions& options) {
  const ModelSpec& spec = model->spec;
  const auto refuse = [](const std::string& why) { return make_error(ErrorCode::invalid_argument, why); };
  if (options.step_tokens_max == 0) return refuse("step_tokens_max must be at least 1");
  if (options.sequences_max == 0) return refuse("sequences_max must be at least 1");
  if (options.kv_blocks == 0) return refuse("kv_blocks must be at least 1");
  if (options.sequence_tokens_max > spec.context_tokens) return refuse("sequence_tokens_max is beyond the context");
  if (model->weights.ranks.size() != 1) {
    return make_error(ErrorCode::unsupported, "the CUDA executor has no tensor parallelism yet");
  }
  const std::uint32_t context = options.sequence_tokens_max != 0 ? options.sequence_tokens_max : spec.context_tokens;
  const std::size_t row_bytes = std::size_t{spec.vocabulary} * sizeof(float);
  const auto logits_rows = std::clamp<std::size_t>(logits_bytes_max / row_bytes, 1, options.sequences_max);
  const DeviceModelLimits device_limits{options.step_tokens_max, options.sequences_max, context, options.kv_blocks,
                                        static_cast<std::uint32_t>(logits_rows)};
  PENSTOCK_TRY(DeviceModel on_device, DeviceModel::make(spec, model->weights, device_limits));
  const ExecutorLimits limits{options.step_tokens_max, options.sequences_max, context, spec.vocabulary};
  return std::unique_ptr<Executor>(
      std::make_unique<CudaExecutor>(std::move(model), std::move(on_device), limits, device_limits));
}

}  // namespace penstock::worker
