#include "worker/executor/cpu/step_plan.hpp"

#include "common/base/check.hpp"

namespace penstock::worker {
namespace {

void check_sequence(const SequenceStep& step, const PlanLimits& limits) {
  const std::size_t end = step.position + step.tokens.size();
  PENSTOCK_CHECK(!step.tokens.empty(), "row", step.row, "has no tokens");
  PENSTOCK_CHECK(step.row < limits.executor.sequences_max, "row", step.row);
  PENSTOCK_CHECK(end <= limits.executor.sequence_tokens_max, "tokens", end);
  PENSTOCK_CHECK(step.blocks.size() * limits.block_tokens >= end, "blocks", step.blocks.size(), "tokens", end);
  for (const TokenId token : step.tokens) {
    PENSTOCK_CHECK(token < limits.executor.vocabulary_size, "token", token);
  }
  for (std::size_t i = 0; i * limits.block_tokens < end; ++i) {
    PENSTOCK_CHECK(step.blocks[i] < limits.kv_blocks, "block", step.blocks[i], "of", limits.kv_blocks);
  }
}

void add_logits_rows(const SequenceStep& step, std::uint32_t sequence, std::uint32_t first_row, StepPlan& plan) {
  const auto count = static_cast<std::uint32_t>(step.tokens.size());
  std::uint32_t slots = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    LogitsRow entry;
    entry.row = first_row + i;
    entry.sequence = sequence;
    entry.draws = is_last && step.sample.has_value();
    if (step.prompt_logprobs) {
      if (!is_last) entry.scored_token = step.tokens[i + 1];
      if (is_last) entry.scored_token = step.next_prompt_token;
    }
    if (entry.scored_token) entry.score_slot = slots++;
    if (entry.scored_token || entry.draws) plan.logits.push_back(entry);
  }
  plan.result.sequences[sequence].prompt_logprobs.resize(slots);
}

}  // namespace

void make_plan(const StepBatch& batch, const PlanLimits& limits, StepPlan& plan) {
  plan.batch = batch;
  plan.tokens.clear();
  plan.sequences.clear();
  plan.logits.clear();
  plan.result.sequences.assign(batch.sequences.size(), SequenceResult());
  PENSTOCK_CHECK(batch.sequences.size() <= limits.executor.sequences_max, "sequences", batch.sequences.size());
  for (std::uint32_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceStep& step = plan.batch.sequences[i];
    check_sequence(step, limits);
    const auto first_row = static_cast<std::uint32_t>(plan.tokens.size());
    const auto rows = static_cast<std::uint32_t>(step.tokens.size());
    plan.tokens.insert(plan.tokens.end(), step.tokens.begin(), step.tokens.end());
    plan.sequences.push_back({step.blocks.data(), first_row, rows, step.position});
    add_logits_rows(step, i, first_row, plan);
  }
  PENSTOCK_CHECK(plan.tokens.size() <= limits.executor.step_tokens_max, "tokens", plan.tokens.size());
  plan.not_finite.assign(plan.logits.size(), 0);
}

}  // namespace penstock::worker
