// What a step's results mean: tokens to send, choices that end, blocks that may be cached.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

void Scheduler::apply(const StepResult& result, TimePoint now) {
  PlannedStep& step = steps_[oldest_step_];
  PENSTOCK_CHECK(steps_under_way_ > 0 && result.sequences.size() == step.planned.size(), "results",
                 result.sequences.size(), "planned", step.planned.size());
  now_ = now;
  for (const BlockIndex block : step.copy_sources) cache_.release(block);
  step.copy_sources.clear();
  for (std::size_t i = 0; i < step.planned.size(); ++i) {
    const Planned planned = step.planned[i];
    // Null: it had ended in the step before, or its request failed with an earlier choice.
    if (planned.sequence) advance(*planned.sequence, planned.tokens, result.sequences[i]);
  }
  step.planned.clear();
  oldest_step_ = (oldest_step_ + 1) % steps_.size();
  --steps_under_way_;
}

void Scheduler::advance(Sequence& sequence, std::size_t tokens, const SequenceResult& result) {
  Request& request = *sequence.request;
  if (result.not_finite) {
    ++output_.not_finite;
    fail(request, make_error(ErrorCode::internal, "the model's output is not finite (NaN or infinity)"));
    return;
  }
  if (request.wants_scores(sequence)) {
    auto& scores = request.prompt_logprobs;
    scores.insert(scores.end(), result.prompt_logprobs.begin(), result.prompt_logprobs.end());
  }
  computed_tokens_ += tokens;
  sequence.computed += tokens;
  sequence.planned -= tokens;
  commit_blocks(sequence);
  const bool is_leader = request.leader == &sequence;
  if (sequence.remaining() > 0) {
    if (is_leader && request.sends()) offer_progress(request);
    return;
  }
  if (is_leader) {
    if (request.sends()) complete_blocks(sequence);
    fork_followers(sequence, sequence.tokens.size() - 1);
  }
  if (request.output_limit == 0) {
    emit_finish(sequence, protocol::FinishReason::length);
    if (request.sequences.empty()) complete(request);
    return;
  }
  emit_token(sequence, result);
}

protocol::ChoiceStep Scheduler::step_of(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  protocol::ChoiceStep step;
  step.request = request.spec.request;
  step.attempt = request.spec.attempt;
  step.choice = sequence.choice;
  step.position = sequence.output();
  step.usage = {static_cast<std::uint32_t>(sequence.prompt), sequence.cached_tokens, sequence.transferred_tokens};
  return step;
}

void Scheduler::emit_token(Sequence& sequence, const SequenceResult& result) {
  PENSTOCK_CHECK(result.token.has_value());
  Request& request = *sequence.request;
  protocol::ChoiceStep step = step_of(sequence);
  sequence.tokens.push_back(*result.token);
  step.tokens = {*result.token};
  if (result.logprobs) step.logprobs = {*result.logprobs};
  step.finish = finish_of(sequence);
  if (sequence.announced && !step.finish) step.usage.reset();
  sequence.announced = true;
  if (!request.leader) {
    step.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
    request.prompt_scored = true;
  }
  const bool has_ended = step.finish.has_value();
  output_.steps.push_back(std::move(step));
  if (request.sends()) {
    if (const auto send = sends_.find(*request.key); send != sends_.end()) {
      send->second.first_tokens.push_back({sequence.choice, *result.token, has_ended});
    }
  } else if (!has_ended) {
    return;
  }
  drop_sequence(sequence);
  if (request.sequences.empty()) complete(request);
}

/// Ends a choice without a token: it was only scored, or it had ended before it came here.
void Scheduler::emit_finish(Sequence& sequence, protocol::FinishReason reason) {
  protocol::ChoiceStep step = step_of(sequence);
  step.finish = reason;
  if (!sequence.request->leader) step.prompt_logprobs = std::exchange(sequence.request->prompt_logprobs, {});
  output_.steps.push_back(std::move(step));
  drop_sequence(sequence);
}

std::optional<protocol::FinishReason> Scheduler::finish_of(const Sequence& sequence) const {
  const auto& ends = sequence.request->ends;
  if (std::find(ends.begin(), ends.end(), sequence.tokens.back()) != ends.end()) return protocol::FinishReason::stop;
  if (sequence.output() >= sequence.request->output_limit) return protocol::FinishReason::length;
  return std::nullopt;
}

}  // namespace penstock::worker
