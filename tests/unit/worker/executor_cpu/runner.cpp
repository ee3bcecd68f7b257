#include "tests/unit/worker/executor_cpu/runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::worker::test {
namespace {

const protocol::SamplingParams& greedy() {
  static const protocol::SamplingParams params = [] {
    protocol::SamplingParams value;
    value.temperature = 0;
    return value;
  }();
  return params;
}

bool is_done(const Sequence& sequence, const RunOptions& options) {
  if (sequence.not_finite) return true;
  return sequence.computed >= sequence.prompt.size() && sequence.output.size() >= options.output_tokens;
}

/// One step of the given sequences; `buffers` holds their tokens until it ends.
void run_step(Executor& executor, std::vector<Sequence*>& active, const RunOptions& options) {
  StepBatch batch;
  std::vector<std::vector<TokenId>> buffers;
  std::uint32_t budget = executor.limits().step_tokens_max;
  std::vector<Sequence*> taken;
  for (Sequence* sequence : active) buffers.push_back(sequence->tokens());
  for (std::size_t i = 0; i < active.size() && budget > 0; ++i) {
    Sequence& sequence = *active[i];
    const auto total = static_cast<std::uint32_t>(buffers[i].size());
    const std::uint32_t count = std::min({total - sequence.computed, options.chunk, budget});
    budget -= count;
    SequenceStep step;
    step.row = static_cast<std::uint32_t>(i);
    step.position = sequence.computed;
    step.tokens = std::span(buffers[i]).subspan(sequence.computed, count);
    step.blocks = sequence.blocks;
    const std::uint32_t end = sequence.computed + count;
    if (options.score_prompt && sequence.output.empty()) {
      step.prompt_logprobs = 1;
      if (end < sequence.prompt.size()) step.next_prompt_token = sequence.prompt[end];
    }
    if (end == total && sequence.output.size() < options.output_tokens) {
      SampleInput sample;
      sample.params = &greedy();
      sample.position = static_cast<std::uint32_t>(sequence.output.size());
      sample.prompt = sequence.prompt;
      sample.output = sequence.output;
      step.sample = sample;
    }
    batch.sequences.push_back(step);
    taken.push_back(&sequence);
  }
  executor.launch(batch);
  auto result = executor.collect();
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->sequences.size(), taken.size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    SequenceResult& from = result->sequences[i];
    taken[i]->computed += static_cast<std::uint32_t>(batch.sequences[i].tokens.size());
    taken[i]->not_finite = from.not_finite;
    for (auto& position : from.prompt_logprobs) taken[i]->prompt_logprobs.push_back(std::move(position));
    if (from.token) taken[i]->output.push_back(*from.token);
  }
}

}  // namespace

std::vector<TokenId> Sequence::tokens() const {
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), output.begin(), output.end());
  return all;
}

void assign_blocks(std::vector<Sequence>& sequences, std::uint32_t tokens, std::uint32_t block_tokens) {
  BlockIndex next = 0;
  const std::uint32_t count = (tokens + block_tokens - 1) / block_tokens;
  for (Sequence& sequence : sequences) {
    sequence.blocks.clear();
    // Backwards, so that a kernel that ignores the table is found out.
    for (std::uint32_t i = 0; i < count; ++i) sequence.blocks.push_back(next + count - 1 - i);
    next += count;
  }
}

void run_sequences(Executor& executor, std::vector<Sequence>& sequences, const RunOptions& options) {
  const std::size_t steps_max = 100000;
  for (std::size_t step = 0; step < steps_max; ++step) {
    std::vector<Sequence*> active;
    for (Sequence& sequence : sequences) {
      if (!is_done(sequence, options)) active.push_back(&sequence);
      if (options.one_by_one && !active.empty()) break;
    }
    if (active.empty()) return;
    run_step(executor, active, options);
    if (::testing::Test::HasFatalFailure()) return;
  }
  FAIL() << "the sequences never end";
}

}  // namespace penstock::worker::test
