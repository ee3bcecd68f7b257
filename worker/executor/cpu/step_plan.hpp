// One step as flat rows: what the ranks read while they compute. Made from a StepBatch by the engine's thread, then
// read-only until the step ends. Its vectors keep their capacity.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/types.hpp"
#include "kernels/cpu/attention.hpp"
#include "worker/engine/executor.hpp"

namespace penstock::worker {

/// A row whose logits are wanted.
struct LogitsRow {
  std::uint32_t row = 0;
  std::uint32_t sequence = 0;           // index in the batch
  std::optional<TokenId> scored_token;  // the prompt token that follows
  std::uint32_t score_slot = 0;         // where its logprobs go in SequenceResult::prompt_logprobs
  bool draws = false;                   // SequenceStep::sample
};

struct StepPlan {
  StepBatch batch;
  std::vector<TokenId> tokens;  // all rows
  std::vector<kernels::cpu::AttentionSequence> sequences;
  std::vector<LogitsRow> logits;
  StepResult result;
  std::vector<std::uint8_t> not_finite;  // per entry of logits

  std::size_t rows() const { return tokens.size(); }
};

struct PlanLimits {
  ExecutorLimits executor;
  std::uint32_t kv_blocks = 0;
  std::uint32_t block_tokens = 0;
};

/// Fills `plan` anew. A batch beyond the limits is a broken invariant of the engine.
void make_plan(const StepBatch& batch, const PlanLimits& limits, StepPlan& plan);

}  // namespace penstock::worker
