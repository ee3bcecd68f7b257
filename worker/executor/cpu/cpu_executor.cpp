#include "worker/executor/cpu/cpu_executor.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "common/base/check.hpp"
#include "worker/comm/thread_group.hpp"
#include "worker/executor/cpu/rank_executor.hpp"
#include "worker/memory/kv_pool.hpp"

namespace penstock::worker {
namespace {

using kernels::cpu::KvType;

KvType kv_type(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::bf16:
      return KvType::bf16;
    case KvDtype::f16:
      return KvType::f16;
    case KvDtype::f32:
      return KvType::f32;
  }
  return KvType::bf16;
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(std::shared_ptr<const LoadedModel> model, const CpuExecutorOptions& options, KvPool pool)
      : model_(std::move(model)),
        options_(options),
        kv_(std::move(pool)),
        kernels_(options.isa_level.value_or(kernels::cpu::best_isa_level())),
        rope_(make_rope_tables(model_->spec.rope, options.sequence_tokens_max)),
        group_(static_cast<std::uint32_t>(model_->weights.ranks.size()), options.collective_deadline),
        crew_({group_.ranks(), {}, 0}) {
    limits_ = {options.step_tokens_max, options.sequences_max, options.sequence_tokens_max, model_->spec.vocabulary};
    for (std::uint32_t rank = 0; rank < group_.ranks(); ++rank) {
      kernels::cpu::ThreadPoolOptions threads;
      threads.threads = options.threads;
      if (group_.ranks() == 1) threads.cpus = options.cpus;
      ranks_.push_back(std::make_unique<RankExecutor>(context(rank), group_.ranks() == 1 ? nullptr : &group_.rank(rank),
                                                      std::move(threads)));
    }
    errors_.resize(ranks_.size());
  }

  const ExecutorLimits& limits() const override { return limits_; }

  KvPoolView kv_pool() override {
    const ModelSpec& spec = model_->spec;
    const bool in_pairs = spec.rope.style == kernels::cpu::RopeStyle::interleaved;
    return {kv_.data(),
            options_.kv_blocks,
            {spec.kv_heads, spec.layers, options_.block_tokens, spec.head_dim, options_.kv_dtype,
             in_pairs ? KeyOrder::pairs : KeyOrder::halves},
            kv_.file()};
  }

  void launch(const StepBatch& batch) override {
    PENSTOCK_CHECK(!is_launched_, "a step is in flight already");
    make_plan(batch, {limits_, options_.kv_blocks, options_.block_tokens}, plan_);
    is_launched_ = true;
  }

  Result<StepResult> collect() override {
    PENSTOCK_CHECK(is_launched_, "no step in flight");
    is_launched_ = false;
    const std::size_t block_bytes = kv_block_bytes(model_->spec, options_.block_tokens, options_.kv_dtype);
    for (const BlockCopy& copy : plan_.batch.copies) {
      PENSTOCK_CHECK(copy.from < options_.kv_blocks && copy.to < options_.kv_blocks, copy.from, "to", copy.to);
      std::memmove(kv_.data() + copy.to * block_bytes, kv_.data() + copy.from * block_bytes, block_bytes);
    }
    if (plan_.rows() > 0) {
      if (ranks_.size() == 1) {
        errors_[0] = ranks_[0]->run(plan_);
      } else {
        crew_.run([this](kernels::cpu::ThreadPool::Member& member) {
          errors_[member.index()] = ranks_[member.index()]->run(plan_);
        });
      }
    }
    for (const std::optional<Error>& error : errors_) {
      if (error) return *error;
    }
    refuse_not_finite();
    return std::move(plan_.result);
  }

 private:
  RankContext context(std::uint32_t rank) const {
    const ModelSpec& spec = model_->spec;
    RankContext context;
    context.spec = &spec;
    context.weights = &model_->weights;
    context.kernels = &kernels_;
    context.rope = {rope_.cos.data(), rope_.sin.data(), options_.sequence_tokens_max, spec.rope.rotary_dim,
                    spec.rope.style};
    context.kv.data = kv_.data();
    context.kv.layout = {spec.kv_heads, spec.layers, options_.block_tokens, spec.head_dim, kv_type(options_.kv_dtype)};
    context.kv.first_kv_head = spec.kv_heads / group_.ranks() * rank;
    context.step_tokens_max = options_.step_tokens_max;
    context.sequences_max = options_.sequences_max;
    return context;
  }

  void refuse_not_finite() {
    for (std::size_t i = 0; i < plan_.logits.size(); ++i) {
      if (plan_.not_finite[i] == 0) continue;
      SequenceResult& result = plan_.result.sequences[plan_.logits[i].sequence];
      result = SequenceResult();
      result.not_finite = true;
    }
  }

  std::shared_ptr<const LoadedModel> model_;  // shared with whoever serves the model card
  CpuExecutorOptions options_;
  ExecutorLimits limits_;
  KvPool kv_;
  kernels::cpu::Kernels kernels_;
  RopeTables rope_;
  ThreadGroup group_;
  kernels::cpu::ThreadPool crew_;  // one thread a rank; each leads a team of its own
  std::vector<std::unique_ptr<RankExecutor>> ranks_;
  std::vector<std::optional<Error>> errors_;
  StepPlan plan_;
  bool is_launched_ = false;
};

Result<void> check_options(const CpuExecutorOptions& options, const ModelSpec& spec) {
  const auto refuse = [](const std::string& why) { return make_error(ErrorCode::invalid_argument, why); };
  if (options.step_tokens_max == 0) return refuse("step_tokens_max must be at least 1");
  if (options.sequences_max == 0) return refuse("sequences_max must be at least 1");
  if (options.kv_blocks == 0) return refuse("kv_blocks must be at least 1");
  if (options.block_tokens == 0 || options.block_tokens > 1024) return refuse("block_tokens must be 1 to 1024");
  if (options.threads == 0 || options.threads > 1024) return refuse("threads must be 1 to 1024");
  if (options.sequence_tokens_max > spec.context_tokens) {
    return refuse("sequence_tokens_max " + std::to_string(options.sequence_tokens_max) +
                  " is beyond the model's context of " + std::to_string(spec.context_tokens));
  }
  if (options.isa_level && !kernels::cpu::is_supported(*options.isa_level)) {
    return refuse("this processor does not run the kernels of level " + std::string(to_string(*options.isa_level)));
  }
  return {};
}

}  // namespace

std::size_t kv_block_bytes(const ModelSpec& spec, std::uint32_t block_tokens, KvDtype dtype) {
  return kernels::cpu::KvLayout{spec.kv_heads, spec.layers, block_tokens, spec.head_dim, kv_type(dtype)}.block_bytes();
}

Result<std::unique_ptr<Executor>> make_cpu_executor(std::shared_ptr<const LoadedModel> model,
                                                    const CpuExecutorOptions& options) {
  PENSTOCK_TRY_VOID(check_options(options, model->spec));
  CpuExecutorOptions filled = options;
  if (filled.sequence_tokens_max == 0) filled.sequence_tokens_max = model->spec.context_tokens;
  const std::size_t block_bytes = kv_block_bytes(model->spec, options.block_tokens, options.kv_dtype);
  PENSTOCK_TRY(KvPool pool, KvPool::allocate(block_bytes * options.kv_blocks));
  try {
    return std::unique_ptr<Executor>(std::make_unique<CpuExecutor>(std::move(model), filled, std::move(pool)));
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::resource_exhausted,
                      "there is too little memory for the step buffers; lower step_tokens_max");
  }
}

}  // namespace penstock::worker
