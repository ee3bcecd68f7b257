// What a step's results mean: tokens to send, choices that end, blocks that may be cached.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

void Scheduler::apply(const StepResult& result, TimePoint now) {
  PENSTOCK_CHECK(in_step_ && result.sequences.size() == planned_.size(), "results", result.sequences.size(), "planned",
                 planned_.size());
  in_step_ = false;
  now_ = now;
  for (const BlockIndex block : copy_sources_) cache_.release(block);
  copy_sources_.clear();
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    if (planned_[i]) advance(*planned_[i], result.sequences[i]);  // null: its request failed with an earlier choice
  }
  planned_.clear();
}

void Scheduler::advance(Sequence& sequence, const SequenceResult& result) {
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
  computed_tokens_ += sequence.planned;
  sequence.computed += std::exchange(sequence.planned, 0);
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
