// A scheduler over a fake executor, driven by a manual clock: what a client would see, and checks after every step.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "worker/core/scheduler/scheduler.hpp"
#include "worker/executor/fake/fake_executor.hpp"

namespace penstock::worker {

class MixHasher final : public PrefixHasher {
 public:
  BlockHash root(const std::string& salt, const std::string&) const override { return {salt.size() + 1, 42}; }
  std::vector<BlockHash> hash_blocks(BlockHash parent, std::span<const TokenId> tokens) const override {
    std::vector<BlockHash> out;
    for (std::size_t i = 0; i + block_tokens <= tokens.size(); i += block_tokens) {
      for (std::size_t j = 0; j < block_tokens; ++j) {
        parent.high = (parent.high ^ tokens[i + j]) * 0x9E3779B97F4A7C15ull + parent.low;
        parent.low = (parent.low + parent.high) * 0xBF58476D1CE4E5B9ull + 1;
      }
      out.push_back(parent);
    }
    return out;
  }
  std::size_t block_tokens = 4;
};

struct Node {
  explicit Node(SchedulerConfig settings, FakeModel fake) : model(fake), config(settings), executor(fake) {
    config.context_tokens = fake.limits.sequence_tokens_max;
    config.vocabulary_size = fake.limits.vocabulary_size;
    config.blocks = fake.blocks;
    config.block_tokens = fake.geometry.block_tokens;
    scheduler = std::make_unique<Scheduler>(config, hasher);
  }

  /// Ends one step, after starting the next one if the model takes two; false when nothing could run.
  bool step() {
    if (scheduler->steps_under_way() == 0) {
      const StepBatch& batch = scheduler->plan(now);
      if (!batch.sequences.empty()) executor.launch(batch);
    }
    const bool ran = scheduler->steps_under_way() > 0;
    const bool may_start = ran && scheduler->steps_under_way() < executor.steps_in_flight_max();
    if (const StepBatch* next = may_start ? scheduler->plan_ahead(now) : nullptr) {
      executor.launch(*next);
      ++planned_ahead;
    }
    if (ran) scheduler->apply(*executor.collect(), now);
    collect();
    now += std::chrono::milliseconds(1);
    const std::string contradiction = scheduler->cache().find_contradiction();
    EXPECT_EQ(contradiction, "");
    return ran;
  }

  /// Ends the steps under way, so that commands may come.
  void settle() {
    while (scheduler->steps_under_way() > 0) scheduler->apply(*executor.collect(), now);
    collect();
  }

  void collect() {
    SchedulerOutput output = scheduler->take_output();
    scheduler->cache().take_events();
    for (auto& choice : output.steps) {
      auto& tokens = streams[{choice.request, choice.choice}];
      const auto expected = tokens.size() + first_position[{choice.request, choice.choice}];
      // A receiver that is aborted does not know yet what the prefill worker has sent.
      const bool says_nothing = choice.finish == protocol::FinishReason::aborted && choice.tokens.empty();
      if (!says_nothing) {
        EXPECT_EQ(choice.position, expected) << "gap or repeat";
      }
      tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
      if (choice.finish) ++finishes[{choice.request, choice.choice}];
      if (choice.usage) usage[choice.request] = *choice.usage;
      prompt_scores[choice.request] += choice.prompt_logprobs.size();
    }
    for (auto& error : output.errors) {
      errors[error.request] = error.error;
      retry_after[error.request] = error.retry_after;
    }
    for (auto& status : output.statuses) statuses.push_back(std::move(status));
    for (auto& ended : output.ended) ++ends[ended.first];
    for (auto& action : output.actions) actions.push_back(std::move(action));
    preempted += output.preempted;
  }

  using ChoiceId = std::pair<RequestId, std::uint32_t>;
  FakeModel model;
  SchedulerConfig config;
  FakeExecutor executor;
  MixHasher hasher;
  std::unique_ptr<Scheduler> scheduler;
  TimePoint now{std::chrono::hours(1)};
  std::map<ChoiceId, std::vector<TokenId>> streams;
  std::map<ChoiceId, std::size_t> first_position;
  std::map<ChoiceId, int> finishes;
  std::map<RequestId, int> ends;
  std::map<RequestId, protocol::Usage> usage;
  std::map<RequestId, std::size_t> prompt_scores;
  std::map<RequestId, Error> errors;
  std::map<RequestId, Duration> retry_after;
  std::vector<protocol::TransferStatus> statuses;
  std::vector<TransferAction> actions;
  std::uint32_t preempted = 0;
  std::uint32_t planned_ahead = 0;
};

inline FakeModel small_model(std::uint32_t blocks = 64) {
  FakeModel model;
  model.geometry.block_tokens = 4;
  model.blocks = blocks;
  model.limits = {.step_tokens_max = 64, .sequences_max = 8, .sequence_tokens_max = 512, .vocabulary_size = 1000};
  return model;
}

inline protocol::GenerateSpec request_of(std::uint64_t id, std::vector<TokenId> prompt, std::uint32_t tokens_max,
                                         std::uint32_t choices = 1) {
  protocol::GenerateSpec spec;
  spec.request = {1, id};
  spec.prompt = std::move(prompt);
  for (std::uint32_t i = 0; i < choices; ++i) spec.choices.push_back({i, {}});
  spec.sampling.temperature = choices > 1 ? 1.0f : 0.0f;
  spec.sampling.seed = id;
  spec.sampling.tokens_max = tokens_max;
  return spec;
}

inline std::vector<TokenId> prompt_of(std::size_t length, TokenId salt = 0) {
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < length; ++i) out.push_back(static_cast<TokenId>((i * 7 + salt * 131 + 3) % 1000));
  return out;
}

/// What any correct engine must answer.
inline std::vector<TokenId> truth(const FakeModel& model, const protocol::GenerateSpec& spec, std::uint32_t choice) {
  std::vector<TokenId> context = spec.prompt, out;
  for (std::uint32_t i = 0; i < spec.sampling.tokens_max; ++i) {
    std::optional<FakeDraw> draw;
    if (spec.sampling.temperature != 0) draw = FakeDraw{spec.sampling.seed, choice, i};
    out.push_back(fake_next_token(model, context, draw));
    context.push_back(out.back());
  }
  return out;
}

}  // namespace penstock::worker
