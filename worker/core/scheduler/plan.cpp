// What the next step computes: running choices first, one token each before any prompt, then prompts, then newcomers.
#include <algorithm>

#include "common/base/check.hpp"
#include "worker/core/scheduler/request.hpp"

namespace penstock::worker {

const StepBatch& Scheduler::plan(TimePoint now) {
  PENSTOCK_CHECK(steps_under_way_ == 0);
  now_ = now;
  expire(now);
  // When nothing can move because the running choices hold all blocks, one of them gives way, whatever its priority.
  while (!fill(now) && preempt_worst()) {
  }
  build_batch();
  const StepBatch& batch = step_to_plan().batch;
  if (!batch.sequences.empty()) ++steps_under_way_;
  return batch;
}

bool Scheduler::fill(TimePoint now) {
  for (const Planned& planned : step_to_plan().planned) {
    if (planned.sequence) planned.sequence->planned = 0;
  }
  step_to_plan().planned.clear();
  prune_copies();
  decode_tokens_ = prefill_tokens_ = 0;
  std::uint32_t budget = config_.step_tokens_max;
  const std::vector<Sequence*> order = running_;  // preemption changes running_
  for (Sequence* sequence : order) {
    if (sequence->state != SequenceState::running || sequence->remaining() != 1) continue;
    if (!schedule(*sequence, 1)) continue;
    ++decode_tokens_;
    --budget;
  }
  // While anyone decodes, a step stays short: all prompts together get one chunk.
  if (decode_tokens_ > 0) budget = std::min(budget, config_.prefill_chunk_tokens_max);
  for (Sequence* sequence : order) {
    if (budget == 0) break;
    if (sequence->state != SequenceState::running || sequence->remaining() == 1) continue;
    const auto tokens = std::min<std::size_t>({sequence->remaining(), config_.prefill_chunk_tokens_max, budget});
    if (!schedule(*sequence, tokens)) continue;
    prefill_tokens_ += static_cast<std::uint32_t>(tokens);
    budget -= static_cast<std::uint32_t>(tokens);
  }
  admit_waiting(budget, now);
  return !step_to_plan().planned.empty();
}

// In order and without skipping: who is first and does not fit is waited for, or large requests would starve.
void Scheduler::admit_waiting(std::uint32_t& budget, TimePoint now) {
  is_full_ = false;
  while (budget > 0 && !waiting_.empty() && !rows_.empty()) {
    Sequence& sequence = *waiting_.front();
    if (!admit(sequence, now)) {
      is_full_ = true;
      return;
    }
    const auto tokens = std::min<std::size_t>({sequence.remaining(), config_.prefill_chunk_tokens_max, budget});
    if (!schedule(sequence, tokens)) return;
    (tokens == 1 ? decode_tokens_ : prefill_tokens_) += static_cast<std::uint32_t>(tokens);
    budget -= static_cast<std::uint32_t>(tokens);
  }
}

bool Scheduler::admit(Sequence& sequence, TimePoint now) {
  const bool is_fresh = sequence.blocks.empty();
  if (is_fresh) attach_prefix(sequence);
  const std::uint32_t total = cache_.blocks_for(sequence.tokens.size());
  const auto need = total - static_cast<std::uint32_t>(sequence.blocks.size());
  if (cache_.available() < need + outstanding()) {
    if (is_fresh) release_blocks(sequence);
    // Blocks that other waiting choices hold must not keep the first one out for good.
    if (running_.empty() && make_room(sequence)) return admit(sequence, now);
    return false;
  }
  waiting_.erase(waiting_.begin());
  sequence.state = SequenceState::running;
  sequence.row = rows_.back();
  rows_.pop_back();
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, goes_before), &sequence);
  if (!std::exchange(sequence.admitted, true) && sequence.cached_tokens == 0) {
    sequence.cached_tokens = static_cast<std::uint32_t>(std::min(sequence.computed, sequence.prompt));
  }
  output_.admissions.push_back(
      {now - sequence.queued_at, static_cast<std::uint32_t>(sequence.prompt), sequence.cached_tokens});
  return true;
}

bool Scheduler::uses_prefix(const Sequence& sequence) const {
  return config_.prefix_cache && !sequence.request->wants_scores(sequence);
}

// The last known token is always computed, since its logits are needed. When everything is cached, its block is copied
// first: a shared block is never written.
void Scheduler::attach_prefix(Sequence& sequence) {
  if (!uses_prefix(sequence)) return;
  extend_hashes(sequence, sequence.tokens.size());
  auto& blocks = sequence.blocks;
  blocks = cache_.match(sequence.request->root, sequence.hashes, sequence.tokens);
  sequence.computed = blocks.size() * config_.block_tokens;
  if (sequence.computed == sequence.tokens.size()) {
    const BlockIndex last = blocks.back();
    blocks.pop_back();
    sequence.computed -= config_.block_tokens;
    const bool has_room = cache_.available() > outstanding() && !rows_.empty();
    if (const auto copy = has_room ? copy_of(last) : std::nullopt) {
      blocks.push_back(*copy);
      sequence.computed = sequence.tokens.size() - 1;
    }
    cache_.release(last);
  }
  sequence.committed = sequence.computed / config_.block_tokens;
}

/// Blocks that admitted choices still need for the tokens they know, and received ones for what is on its way.
std::uint32_t Scheduler::outstanding() const {
  std::size_t blocks = 0;
  for (const Sequence* sequence : running_) {
    const std::size_t need = cache_.blocks_for(sequence->tokens.size());
    blocks += need - std::min(need, sequence->blocks.size());
    const Request& request = *sequence->request;
    if (request.leader == sequence) blocks += request.sequences.size() - 1;  // a copied block each
  }
  for (const auto& [key, receive] : receives_) {
    if (!receive.started || !receive.request) continue;
    const Sequence& leader = *receive.request->leader;
    blocks += cache_.blocks_for(leader.tokens.size()) - leader.blocks.size();
  }
  return static_cast<std::uint32_t>(blocks);
}

bool Scheduler::schedule(Sequence& sequence, std::size_t tokens) {
  const std::uint32_t need = cache_.blocks_for(sequence.computed + tokens);
  while (sequence.blocks.size() < need) {
    if (const auto block = cache_.allocate()) {
      sequence.blocks.push_back(*block);
    } else if (!make_room(sequence)) {
      return false;
    }
  }
  plan_tokens(sequence, tokens);
  return true;
}

void Scheduler::plan_tokens(Sequence& sequence, std::size_t tokens) {
  step_to_plan().planned.push_back({&sequence, tokens});
  sequence.planned += tokens;
}

// Takes blocks from who goes after this choice: from waiting ones first, then from running ones that are not in the
// step.
bool Scheduler::make_room(const Sequence& sequence) {
  const std::uint32_t before = cache_.available();
  for (auto it = waiting_.rbegin(); it != waiting_.rend(); ++it) {
    if (*it == &sequence || (*it)->blocks.empty()) continue;
    release_blocks(**it);
    if (cache_.available() > before) return true;
  }
  const std::vector<Sequence*> order = running_;
  for (auto it = order.rbegin(); it != order.rend() && goes_before(&sequence, *it); ++it) {
    if ((*it)->planned > 0 || (*it)->request->sends()) continue;  // what is offered to a peer would stay held
    preempt(**it);
    if (cache_.available() > before) return true;
  }
  return false;
}

void Scheduler::preempt(Sequence& sequence) {
  rows_.push_back(sequence.row);
  std::erase(running_, &sequence);
  release_blocks(sequence);
  if (sequence.request->wants_scores(sequence)) sequence.request->prompt_logprobs.clear();
  ++output_.preempted;
  enqueue(sequence, now_);
}

bool Scheduler::preempt_worst() {
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if ((*it)->request->sends()) continue;
    preempt(**it);
    return running_.size() > 0;
  }
  return false;
}

void Scheduler::preempt_all() {
  PENSTOCK_CHECK(steps_under_way_ == 0);
  const std::vector<Sequence*> order = running_;
  for (Sequence* sequence : order) {
    if (!sequence->request->sends()) preempt(*sequence);
  }
}

void Scheduler::build_batch() {
  PlannedStep& step = step_to_plan();
  step.batch.copies.clear();
  step.batch.sequences.clear();
  prune_copies();
  if (step.planned.empty()) return;
  for (const PendingCopy& copy : copies_) {
    step.batch.copies.push_back({copy.from, copy.to});
    step.copy_sources.push_back(copy.from);
  }
  copies_.clear();
  for (const Planned& planned : step.planned) {
    step.batch.sequences.push_back(step_for(*planned.sequence, planned.tokens));
  }
}

SequenceStep Scheduler::step_for(const Sequence& sequence, std::size_t count) const {
  const Request& request = *sequence.request;
  const protocol::SamplingParams& sampling = request.spec.sampling;
  const std::span<const TokenId> tokens = sequence.tokens;
  SequenceStep step;
  step.row = sequence.row;
  step.position = static_cast<std::uint32_t>(sequence.computed + sequence.planned - count);
  step.follows = step.position == tokens.size();
  static constexpr TokenId any = 0;
  step.tokens = step.follows ? std::span(&any, 1) : tokens.subspan(step.position, count);
  step.blocks = sequence.blocks;
  const std::size_t end = step.position + count;
  if (end >= tokens.size() && request.output_limit > 0) {
    const auto output = static_cast<std::uint32_t>(end - sequence.prompt);
    const bool is_early = output < sampling.tokens_min;
    step.sample = SampleInput{&sampling,
                              sequence.choice,
                              output,
                              tokens.first(sequence.prompt),
                              tokens.subspan(sequence.prompt),
                              is_early ? std::span<const TokenId>(request.ends) : std::span<const TokenId>{}};
  }
  if (request.wants_scores(sequence)) {
    step.prompt_logprobs = sampling.prompt_logprobs;
    if (end < sequence.prompt) step.next_prompt_token = tokens[end];
  }
  return step;
}

}  // namespace penstock::worker
