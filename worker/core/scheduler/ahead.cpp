// One step ahead: while a step is under way that decodes every running choice, the next one is known but for the tokens
// that it starts from. Nobody comes in, gives way or is copied in it; whoever needs that waits for the results.
#include <algorithm>

#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

namespace {

/// Whether the next token is drawn from logits as they are. Penalties depend on the token under way, and a backend need
/// not have room for a bias of every row.
bool draws_plainly(const protocol::SamplingParams& params) {
  return params.logit_bias.empty() && params.repetition_penalty == 1 && params.presence_penalty == 0 &&
         params.frequency_penalty == 0;
}

/// Whether the token under way is its last one, whichever it is.
bool ends_with_next(const Sequence& sequence) {
  return sequence.request->sends() || sequence.output() + 1 >= sequence.request->output_limit;
}

/// Whether the step under way computes its last known token and draws one, and nothing else hangs on that.
bool decodes(const Sequence& sequence) {
  const Request& request = *sequence.request;
  const bool is_early = sequence.output() + 1 < request.spec.sampling.tokens_min;  // to end, in the next step
  return sequence.planned == 1 && sequence.remaining() == 1 && request.output_limit > 0 && !request.leader &&
         !is_early && draws_plainly(request.spec.sampling);
}

}  // namespace

const StepBatch* Scheduler::plan_ahead(TimePoint now) {
  if (!may_plan_ahead(now)) return nullptr;
  for (Sequence* sequence : running_) {
    if (!ends_with_next(*sequence)) schedule_ahead(*sequence);
  }
  decode_tokens_ = static_cast<std::uint32_t>(step_to_plan().planned.size());
  prefill_tokens_ = 0;
  build_batch();
  const StepBatch& batch = step_to_plan().batch;
  if (batch.sequences.empty()) return nullptr;
  ++steps_under_way_;
  return &batch;
}

bool Scheduler::may_plan_ahead(TimePoint now) const {
  const bool may_admit = !waiting_.empty() && !rows_.empty() && !is_full_;
  if (steps_under_way_ != 1 || may_admit || (due_ && *due_ <= now)) return false;
  // A block that is being copied is held twice, and a shared block is never written.
  if (!copies_.empty() || !steps_[oldest_step_].copy_sources.empty()) return false;
  std::size_t blocks = 0;
  for (const Sequence* sequence : running_) {
    if (!decodes(*sequence)) return false;
    const std::size_t need = ends_with_next(*sequence) ? 0 : cache_.blocks_for(sequence->tokens.size() + 1);
    blocks += need - std::min(need, sequence->blocks.size());
  }
  return blocks <= cache_.available();
}

void Scheduler::schedule_ahead(Sequence& sequence) {
  const std::uint32_t need = cache_.blocks_for(sequence.tokens.size() + 1);
  while (sequence.blocks.size() < need) sequence.blocks.push_back(cache_.allocate().value());
  plan_tokens(sequence, 1);
}

}  // namespace penstock::worker
