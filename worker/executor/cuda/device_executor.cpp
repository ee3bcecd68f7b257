#include "worker/executor/cuda/device_executor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/base/check.hpp"
#include "worker/core/sampling/sampler.hpp"
#include "worker/executor/cpu/step_plan.hpp"
#include "worker/executor/cuda/decode_runner.hpp"
#include "worker/executor/cuda/device_model.hpp"
#include "worker/executor/cuda/row_sampler.hpp"
#include "worker/executor/cuda/sample_rows.hpp"

namespace penstock::worker {
namespace {

constexpr std::uint32_t block_tokens = 16;
constexpr std::size_t logits_bytes_max = 64u << 20;

// Over all rows of a step: a prompt of so many different tokens, say, under a repetition penalty.
constexpr std::uint32_t adjustments_max = 65536;

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(std::shared_ptr<const LoadedModel> loaded, DeviceModel model, const ExecutorLimits& limits,
                 const DeviceModelLimits& device_limits)
      : loaded_(std::move(loaded)),
        model_(std::move(model)),
        limits_(limits),
        device_limits_(device_limits),
        sampler_(limits.vocabulary_size),
        drawn_(limits.sequences_max) {}

  /// What needs the model in its place.
  Result<void> prepare(CudaLaunch launch) {
    const DecodeLimits decode{limits_.sequences_max, limits_.sequence_tokens_max, adjustments_max,
                              model_.decoded_max()};
    PENSTOCK_TRY(row_sampler_,
                 RowSampler::make(limits_.vocabulary_size, device_limits_.logits_rows_max, adjustments_max));
    PENSTOCK_TRY(decoder_, DecodeRunner::make(model_.for_decoding(), decode, launch, stream()));
    const DecodeStep& step = decoder_.step();
    decode_samples_.emplace(limits_.vocabulary_size, step.inputs(0, step.rows_max()).samples, step.adjustments(0));
    for (UnderWay& one : steps_) {
      PENSTOCK_TRY(one.watch, kernels::cuda::Stopwatch::make());
    }
    return model_.stream().wait();
  }

  /// Memory that a step under way reads or writes must not go before.
  ~DeviceExecutor() override {
    if (under_way_ > 0) (void)model_.stream().wait();
  }

  const ExecutorLimits& limits() const override { return limits_; }

  /// Two where every step of single tokens is a decode step.
  std::uint32_t steps_in_flight_max() const override {
    return model_.decoded_max() >= std::min(limits_.sequences_max, limits_.step_tokens_max) ? 2 : 1;
  }

  /// In the slab order of KvGeometry: see kernels/cuda/kv_layout.hpp. Weights are brought into the order of halves.
  KvPoolView kv_pool() override {
    const ModelSpec& spec = loaded_->spec;
    return {nullptr,
            device_limits_.kv_blocks,
            {spec.kv_heads, spec.layers, block_tokens, spec.head_dim, KvDtype::bf16},
            -1,
            model_.pool()};
  }

  void launch(const StepBatch& batch) override {
    PENSTOCK_CHECK(under_way_ < steps_in_flight_max(), "steps under way", under_way_);
    make_plan(batch, {limits_, device_limits_.kv_blocks, block_tokens}, plan_);
    turn_ = (oldest_ + under_way_++) % steps_.size();
    steps_[turn_].started = start(steps_[turn_]);
  }

  Result<StepResult> collect() override {
    PENSTOCK_CHECK(under_way_ > 0, "no step in flight");
    UnderWay& step = steps_[oldest_];
    if (!step.started) return step.started.error();  // with what is under way behind it
    if (step.is_decode) {
      PENSTOCK_TRY(const double seconds, step.watch.seconds());
      StepResult result = results_of(step);
      result.device_time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
      end_step();
      return result;
    }
    PENSTOCK_TRY_VOID(draw());
    end_step();
    return std::move(plan_.result);
  }

 private:
  struct Row {
    bool draws = false;
    std::optional<std::uint32_t> logprobs;
  };
  /// A step that was launched and not collected.
  struct UnderWay {
    bool is_decode = false;
    std::vector<Row> rows;  // of a decode step
    Result<void> started;
    kernels::cuda::Stopwatch watch;  // around it
  };

  kernels::cuda::Stream stream() const { return model_.stream().get(); }

  void end_step() {
    oldest_ = (oldest_ + 1) % steps_.size();
    --under_way_;
  }

  Result<void> draw() {
    const std::size_t rows_max = device_limits_.logits_rows_max;
    for (std::size_t first = 0; first < plan_.logits.size(); first += rows_max) {
      PENSTOCK_TRY_VOID(sample_rows(first, std::min(rows_max, plan_.logits.size() - first)));
    }
    if (plan_.logits.empty()) return model_.stream().wait();
    return {};
  }

  Result<void> start(UnderWay& step) {
    for (const BlockCopy& copy : plan_.batch.copies) PENSTOCK_TRY_VOID(model_.copy_block(copy.from, copy.to));
    step.is_decode = fill_decode(step);
    PENSTOCK_CHECK(step.is_decode || under_way_ == 1, "a step behind another is no decode step");
    if (step.is_decode) return start_decode(step);
    if (plan_.rows() == 0) return {};
    fill_step();
    return model_.forward(step_);
  }

  /// Whether the batch is a decode step; then its inputs are in place.
  bool fill_decode(UnderWay& step) {
    const std::size_t count = plan_.batch.sequences.size();
    if (count == 0 || count > model_.decoded_max() || plan_.rows() != count) return false;
    const std::uint32_t rows = decode_rows(static_cast<std::uint32_t>(count));
    const DecodeInputs inputs = decoder_.step().inputs(turn_, rows);
    decode_samples_->move_to(inputs.samples, decoder_.step().adjustments(turn_), decoder_.step().result_offset(turn_));
    step.rows.assign(count, {});
    for (std::size_t i = 0; i < count; ++i) {
      const SequenceStep& sequence = plan_.batch.sequences[i];
      if (sequence.prompt_logprobs) return false;
      inputs.tokens[i] = sequence.follows ? drawn_[sequence.row] : sequence.tokens.front();
      inputs.lengths[i] = static_cast<std::int32_t>(sequence.position + 1);
      inputs.table_of[i] = static_cast<std::int32_t>(sequence.row);
      if (!sequence.sample) {
        decode_samples_->skip(i);
      } else if (!decode_samples_->add(i, *sequence.sample)) {
        return false;
      } else {
        step.rows[i] = {true, sequence.sample->params->logprobs};
      }
    }
    for (std::size_t i = count; i < rows; ++i) {
      inputs.tokens[i] = 0;
      inputs.lengths[i] = inputs.table_of[i] = 0;
      decode_samples_->skip(i);
    }
    return true;
  }

  Result<void> start_decode(UnderWay& step) {
    DecodeStep& decode = decoder_.step();
    std::uint32_t longest = 1;
    for (std::size_t i = 0; i < plan_.batch.sequences.size(); ++i) {
      const SequenceStep& sequence = plan_.batch.sequences[i];
      longest = std::max(longest, sequence.position + 1);
      drawn_[sequence.row] = decode.token_of(turn_, static_cast<std::uint32_t>(i));
      PENSTOCK_TRY_VOID(decode.take_table(turn_, sequence.row, sequence.blocks, stream()));
    }
    PENSTOCK_TRY_VOID(step.watch.start(stream()));
    PENSTOCK_TRY_VOID(decode.queue_tables(turn_, stream()));
    PENSTOCK_TRY_VOID(decode.queue_adjustments(turn_, decode_samples_->used(), stream()));
    PENSTOCK_TRY_VOID(decoder_.start(turn_, static_cast<std::uint32_t>(step.rows.size()), longest, stream()));
    return step.watch.stop(stream());
  }

  StepResult results_of(const UnderWay& step) {
    const kernels::cuda::SampledToken* const drawn = decoder_.step().results(static_cast<Turn>(oldest_));
    StepResult result;
    result.sequences.resize(step.rows.size());
    for (std::size_t i = 0; i < step.rows.size(); ++i) {
      if (step.rows[i].draws) result.sequences[i] = result_of(drawn[i], step.rows[i].logprobs);
    }
    return result;
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

  /// Draws on the GPU; scores prompt tokens, and draws what does not fit there, on the processor.
  Result<void> sample_rows(std::size_t first, std::size_t count) {
    wanted_.clear();
    SampleRows& rows = row_sampler_.rows();
    rows.clear();
    is_drawn_.assign(count, false);
    for (std::size_t i = 0; i < count; ++i) {
      const LogitsRow& entry = plan_.logits[first + i];
      wanted_.push_back(entry.row);
      if (entry.scored_token) {
        rows.skip(i);
      } else {
        is_drawn_[i] = rows.add(i, *plan_.batch.sequences[entry.sequence].sample);
      }
    }
    PENSTOCK_TRY(const float* const logits, model_.queue_logits(wanted_));
    PENSTOCK_TRY_VOID(row_sampler_.queue(logits, static_cast<std::uint32_t>(count), stream()));
    const bool needs_logits = std::find(is_drawn_.begin(), is_drawn_.end(), false) != is_drawn_.end();
    if (needs_logits) {
      PENSTOCK_TRY_VOID(model_.download_logits(count, logits_));
    } else {
      PENSTOCK_TRY_VOID(model_.stream().wait());
    }
    for (std::size_t i = 0; i < count; ++i) {
      const LogitsRow& entry = plan_.logits[first + i];
      const std::size_t vocabulary = limits_.vocabulary_size;
      if (is_drawn_[i]) {
        keep_drawn(entry, row_sampler_.results()[i]);
      } else {
        sample(entry, std::span(logits_).subspan(i * vocabulary, vocabulary));
      }
    }
    return {};
  }

  void keep_drawn(const LogitsRow& entry, const kernels::cuda::SampledToken& sampled) {
    SequenceResult& result = plan_.result.sequences[entry.sequence];
    if (result.not_finite) return;
    SequenceResult drawn = result_of(sampled, plan_.batch.sequences[entry.sequence].sample->params->logprobs);
    if (!drawn.not_finite) drawn.prompt_logprobs = std::move(result.prompt_logprobs);
    result = std::move(drawn);
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
  RowSampler row_sampler_;
  DecodeRunner decoder_;
  std::optional<SampleRows> decode_samples_;  // in the memory of decoder_
  StepPlan plan_;
  DeviceStep step_;
  std::vector<std::uint32_t> wanted_;
  std::vector<float> logits_;
  std::vector<bool> is_drawn_;
  std::array<UnderWay, 2> steps_;  // take turns
  Turn turn_ = 0;                  // of the last one launched
  std::uint32_t oldest_ = 0, under_way_ = 0;
  std::vector<TokenId> drawn_;  // by row: names what the last decode step draws for it
};

}  // namespace

Result<std::unique_ptr<Executor>> make_device_executor(std::shared_ptr<const LoadedModel> model, const ModelSpec& share,
                                                       DeviceWeights weights, const CudaExecutorOptions& options,
                                                       const RankEnd& end) {
  const std::uint32_t context = options.sequence_tokens_max != 0 ? options.sequence_tokens_max : share.context_tokens;
  const std::size_t row_bytes = std::size_t{share.vocabulary} * sizeof(float);
  const auto logits_rows = std::clamp<std::size_t>(logits_bytes_max / row_bytes, 1, options.sequences_max);
  const DeviceModelLimits device_limits{options.step_tokens_max, options.sequences_max, context, options.kv_blocks,
                                        static_cast<std::uint32_t>(logits_rows)};
  PENSTOCK_TRY(DeviceModel on_device, DeviceModel::make(share, std::move(weights), device_limits, end));
  const ExecutorLimits limits{options.step_tokens_max, options.sequences_max, context, share.vocabulary};
  auto executor = std::make_unique<DeviceExecutor>(std::move(model), std::move(on_device), limits, device_limits);
  PENSTOCK_TRY_VOID(executor->prepare(options.launch));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace penstock::worker
