// Sequences that tests of decode steps drive by hand through an executor. For tests only.
#pragma once

#include <gtest/gtest.h>

#include "tests/kernel/model_world.hpp"

namespace penstock::worker::test {

constexpr std::uint32_t few_sequences_max = 24, sequences_max = 168;

/// A sequence that is driven by hand, with a prompt of its own.
struct Running {
  std::vector<TokenId> tokens;
  std::vector<BlockIndex> blocks;
  std::uint32_t row = 0, computed = 0, prompt = 0;
  protocol::SamplingParams params;
  std::vector<protocol::PositionLogprobs> logprobs;

  std::vector<TokenId> output() const { return {tokens.begin() + prompt, tokens.end()}; }
};

class DecodeWorld : public ModelWorld {
 protected:
  static std::unique_ptr<Executor> gpu(const std::shared_ptr<const LoadedModel>& model, CudaLaunch launch) {
    CudaExecutorOptions options;
    options.kv_blocks = 2200;
    options.sequences_max = sequences_max;
    options.launch = launch;
    return kernels::cuda::test::must(make_cuda_executor(model, options));
  }
  static std::vector<Running> make(std::uint32_t count, float temperature, std::uint32_t prompt_step = 41) {
    Random random(7);
    std::vector<Running> all(count);
    BlockIndex next = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      Running& sequence = all[i];
      sequence.row = (i * 5 + 3) % (count > few_sequences_max ? sequences_max : few_sequences_max);
      sequence.prompt = 5 + prompt_step * i;
      for (std::uint32_t t = 0; t < sequence.prompt; ++t) {
        sequence.tokens.push_back(static_cast<TokenId>(random.below(250)));
      }
      for (std::uint32_t b = 0; b < (sequence.prompt + 64) / 16 + 1; ++b) sequence.blocks.push_back(next++);
      sequence.params.temperature = temperature;
      sequence.params.top_p = 0.9f;
      sequence.params.presence_penalty = 0.5f;
      sequence.params.seed = 100 + i;
      sequence.params.logprobs = i % 3 == 0 ? std::optional<std::uint32_t>(3) : std::nullopt;
    }
    return all;
  }
  /// One step of these sequences: a chunk of the prompt or one token each.
  static void step(Executor& executor, const std::vector<Running*>& sequences) {
    StepBatch batch;
    for (Running* sequence : sequences) {
      const auto left = static_cast<std::uint32_t>(sequence->tokens.size()) - sequence->computed;
      const std::uint32_t count = std::min(left, 256u);
      SequenceStep part;
      part.row = sequence->row;
      part.position = sequence->computed;
      part.tokens = std::span(sequence->tokens).subspan(sequence->computed, count);
      part.blocks = sequence->blocks;
      if (count == left) {
        SampleInput& sample = part.sample.emplace();
        sample.params = &sequence->params;
        sample.prompt = std::span(sequence->tokens).first(sequence->prompt);
        sample.output = std::span(sequence->tokens).subspan(sequence->prompt);
        sample.position = static_cast<std::uint32_t>(sample.output.size());
      }
      sequence->computed += count;
      batch.sequences.push_back(part);
    }
    executor.launch(batch);
    const StepResult result = kernels::cuda::test::must(executor.collect());
    for (std::size_t i = 0; i < sequences.size() && i < result.sequences.size(); ++i) {
      EXPECT_FALSE(result.sequences[i].not_finite);
      if (!result.sequences[i].token) continue;
      sequences[i]->tokens.push_back(*result.sequences[i].token);
      if (result.sequences[i].logprobs) sequences[i]->logprobs.push_back(*result.sequences[i].logprobs);
    }
  }
  /// Prompts one by one, then `steps` steps of all together, or of each alone.
  static void run(Executor& executor, std::vector<Running>& sequences, std::uint32_t steps, bool one_by_one = false) {
    std::vector<Running*> all;
    for (Running& sequence : sequences) {
      while (sequence.computed < sequence.prompt) step(executor, {&sequence});
      all.push_back(&sequence);
    }
    for (std::uint32_t i = 0; i < steps; ++i) {
      if (!one_by_one) step(executor, all);
      for (Running* sequence : all) {
        if (one_by_one) step(executor, {sequence});
      }
    }
  }
  static void expect_equal(const std::vector<Running>& actual, const std::vector<Running>& expected,
                           const std::string& what) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].output(), expected[i].output()) << what << ", sequence " << i;
      EXPECT_EQ(actual[i].logprobs, expected[i].logprobs) << what << ", sequence " << i;
    }
  }
  /// `others` give the tokens that `reference` gives, for these numbers of sequences, greedy and drawn.
  static void expect_same_tokens(Executor& reference, const std::vector<Executor*>& others,
                                 const std::vector<std::uint32_t>& counts, const std::string& name) {
    for (const std::uint32_t count : counts) {
      for (const float temperature : {0.0f, 0.8f}) {
        const std::string what = name + ", " + std::to_string(count) + " at " + std::to_string(temperature);
        auto expected = make(count, temperature);
        run(reference, expected, 40);
        EXPECT_EQ(expected.back().output().size(), 41u);
        for (Executor* executor : others) {
          auto actual = make(count, temperature);
          run(*executor, actual, 40);
          expect_equal(actual, expected, what);
        }
      }
    }
  }
};

}  // namespace penstock::worker::test
