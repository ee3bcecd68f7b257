#include "worker/core/scheduler/scheduler.hpp"

#include <gtest/gtest.h>

#include "common/time/random.hpp"
#include "tests/unit/worker/scheduler_harness.hpp"

namespace penstock::worker {
namespace {

void run_to_end(Node& node, int steps_max = 2000) {
  for (int i = 0; i < steps_max && node.step(); ++i) {
  }
}

void expect_truth(Node& node, const protocol::GenerateSpec& spec) {
  for (const auto& choice : spec.choices) {
    EXPECT_EQ((node.streams[{spec.request, choice.index}]), truth(node.model, spec, choice.index));
    EXPECT_EQ((node.finishes[{spec.request, choice.index}]), 1);
  }
  EXPECT_EQ(node.ends[spec.request], 1);
  EXPECT_FALSE(node.errors.contains(spec.request));
}

void expect_clean(Node& node) {
  EXPECT_EQ(node.scheduler->cache().available(), node.config.blocks) << "leaked blocks";
  EXPECT_EQ(node.scheduler->cache().pinned(), 0u);
}

TEST(Scheduler, EveryChunkSizeAndCacheSettingGivesTheSameTokens) {
  for (const bool cache : {false, true}) {
    for (std::uint32_t chunk = 1; chunk <= 24; ++chunk) {
      SchedulerConfig config;
      config.prefix_cache = cache;
      config.step_tokens_max = std::max(chunk, 8u);
      config.prefill_chunk_tokens_max = chunk;
      Node node(config, small_model());
      std::vector<protocol::GenerateSpec> specs;
      for (std::uint64_t id = 1; id <= 4; ++id) {
        specs.push_back(request_of(id, prompt_of(15 + id), 9, id == 4 ? 3 : 1));
        node.scheduler->generate({specs.back()}, node.now);
        run_to_end(node, id % 2 == 0 ? 1000 : 2);
      }
      run_to_end(node);
      for (const auto& spec : specs) expect_truth(node, spec);
      expect_clean(node);
    }
  }
}

TEST(Scheduler, LongPromptsAndThoseBehindThemShowProgress) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  config.sequences_max = 1;
  config.prefix_cache = false;
  Node node(config, small_model());
  const auto first = request_of(1, prompt_of(60), 20), second = request_of(2, prompt_of(20), 2);
  node.scheduler->generate({first}, node.now);
  node.scheduler->generate({second}, node.now);
  (void)node.scheduler->take_progress();
  EXPECT_TRUE(node.scheduler->take_progress().empty()) << "nothing has moved";
  node.step();
  auto progress = node.scheduler->take_progress();
  ASSERT_EQ(progress.size(), 2u);
  EXPECT_EQ(progress[0], (protocol::Progress{first.request, 0, 8}));
  EXPECT_EQ(progress[1], (protocol::Progress{second.request, 0, 0}));
  EXPECT_TRUE(node.scheduler->take_progress().empty());
  while (node.streams[{first.request, 0}].size() < 3) ASSERT_TRUE(node.step());
  progress = node.scheduler->take_progress();
  ASSERT_EQ(progress.size(), 1u) << "tokens speak for themselves";
  EXPECT_EQ(progress[0].request, second.request);
  run_to_end(node);
  EXPECT_TRUE(node.scheduler->take_progress().empty());
}

TEST(Scheduler, AFullHitComputesOneTokenInItsOwnBlock) {
  Node node({}, small_model());
  const auto first = request_of(1, prompt_of(16), 3), second = request_of(2, prompt_of(16), 3);
  node.scheduler->generate({first}, node.now);
  run_to_end(node);
  node.scheduler->generate({second}, node.now);
  const StepBatch& batch = node.scheduler->plan(node.now);
  ASSERT_EQ(batch.sequences.size(), 1u);
  EXPECT_EQ(batch.sequences[0].tokens.size(), 1u);
  ASSERT_EQ(batch.copies.size(), 1u);
  EXPECT_EQ(batch.copies[0].to, batch.sequences[0].blocks.back());
  node.executor.launch(batch);
  node.scheduler->apply(*node.executor.collect(), node.now);
  node.collect();
  run_to_end(node);
  expect_truth(node, first);
  expect_truth(node, second);
  EXPECT_EQ(node.usage[second.request].cached_tokens, 15u);
  expect_clean(node);
}

TEST(Scheduler, PreemptionAtAnyStepChangesNothing) {
  for (int at = 1; at < 16; ++at) {
    for (const bool cache : {false, true}) {
      SchedulerConfig config;
      config.prefix_cache = cache;
      config.prefill_chunk_tokens_max = 8;
      Node node(config, small_model());
      const auto a = request_of(1, prompt_of(21), 8), b = request_of(2, prompt_of(12, 5), 8, 3);
      node.scheduler->generate({a}, node.now);
      node.scheduler->generate({b}, node.now);
      for (int i = 0; i < at; ++i) node.step();
      node.scheduler->preempt_all();
      run_to_end(node);
      expect_truth(node, a);
      expect_truth(node, b);
      expect_clean(node);
    }
  }
}

TEST(Scheduler, AMigratedChoiceGoesOnIdentically) {
  const auto whole = request_of(1, prompt_of(13), 10, 2);
  for (std::size_t at = 0; at < 10; ++at) {
    Node node({}, small_model());
    auto spec = whole;
    for (auto& choice : spec.choices) {
      auto tokens = truth(node.model, whole, choice.index);
      tokens.resize(at);
      node.streams[{spec.request, choice.index}] = tokens;
      choice.accepted = tokens;
    }
    node.scheduler->generate({spec}, node.now);
    run_to_end(node);
    expect_truth(node, whole);
    expect_clean(node);
  }
}

TEST(Scheduler, RefusesAtOnceWhatCanNeverRun) {
  Node node({}, small_model(8));
  node.scheduler->generate({request_of(1, prompt_of(30), 4)}, node.now);
  node.scheduler->generate({request_of(2, {}, 4)}, node.now);
  node.scheduler->generate({request_of(3, {5000}, 4)}, node.now);
  node.scheduler->prefill({request_of(4, {1}, 4), {}}, node.now);
  node.collect();
  EXPECT_EQ((node.errors[{1, 1}].code), ErrorCode::invalid_argument);
  EXPECT_NE((node.errors[{1, 1}].message.find("can never run")), std::string::npos);
  EXPECT_EQ((node.errors[{1, 2}].code), ErrorCode::invalid_argument);
  EXPECT_EQ((node.errors[{1, 3}].code), ErrorCode::invalid_argument);
  EXPECT_EQ((node.errors[{1, 4}].code), ErrorCode::unsupported);
  EXPECT_EQ(node.ends.size(), 4u);
}

TEST(Scheduler, NotFiniteLogitsFailOnlyTheirRequest) {
  FakeModel model = small_model();
  model.not_finite_after = 999;
  Node node({}, model);
  auto poison = request_of(1, {1, 2, 999}, 4, 2);
  const auto good = request_of(2, prompt_of(9), 4);
  node.scheduler->generate({poison}, node.now);
  node.scheduler->generate({good}, node.now);
  run_to_end(node);
  EXPECT_EQ(node.errors[poison.request].code, ErrorCode::internal);
  expect_truth(node, good);
  expect_clean(node);
}

TEST(Scheduler, DeadlineEndsARequest) {
  Node node({}, small_model());
  auto spec = request_of(1, prompt_of(9), 100);
  spec.deadline = std::chrono::milliseconds(5);
  node.scheduler->generate({spec}, node.now);
  run_to_end(node);
  EXPECT_EQ(node.errors[spec.request].code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(node.ends[spec.request], 1);
  expect_clean(node);
}

TEST(Scheduler, DeadlineEndsARequestThatWaits) {
  SchedulerConfig config;
  config.sequences_max = 1;
  Node node(config, small_model());
  auto first = request_of(1, prompt_of(9), 30), second = request_of(2, prompt_of(9, 2), 3);
  second.deadline = std::chrono::milliseconds(5);
  node.scheduler->generate({first}, node.now);
  node.scheduler->generate({second}, node.now);
  EXPECT_EQ(node.scheduler->next_deadline(), node.now + second.deadline);
  run_to_end(node);
  EXPECT_EQ(node.errors[second.request].code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(node.ends[second.request], 1);
  EXPECT_EQ(node.scheduler->next_deadline(), std::nullopt);
  expect_truth(node, first);
  expect_clean(node);
}

TEST(Scheduler, AnAbortedRequestIsInNoLaterStep) {
  for (int at = 0; at < 10; ++at) {
    Node node({}, small_model());
    const auto victim = request_of(1, prompt_of(21), 20, 3), other = request_of(2, prompt_of(9, 4), 20);
    node.scheduler->generate({victim}, node.now);
    node.scheduler->generate({other}, node.now);
    for (int i = 0; i < at; ++i) node.step();
    node.scheduler->abort({victim.request, {}, 0, "gone"});
    node.collect();
    EXPECT_EQ(node.ends[victim.request], 1);
    const StepBatch& batch = node.scheduler->plan(node.now);
    ASSERT_EQ(batch.sequences.size(), 1u) << at;
    EXPECT_TRUE(batch.copies.empty()) << at;
    EXPECT_LE(batch.sequences[0].tokens.size(), other.prompt.size());
    node.executor.launch(batch);
    node.scheduler->apply(*node.executor.collect(), node.now);
    node.collect();
    run_to_end(node);
    expect_truth(node, other);
    expect_clean(node);
  }
}

TEST(Scheduler, AFullQueueRefusesAndSaysWhenToComeBack) {
  SchedulerConfig config;
  config.waiting_max = 4;
  config.sequences_max = 1;
  Node node(config, small_model());
  std::vector<protocol::GenerateSpec> specs;
  for (std::uint64_t id = 1; id <= 3; ++id) {  // two choices each; the followers wait for their leader
    specs.push_back(request_of(id, prompt_of(9, static_cast<TokenId>(id)), 3, 2));
    node.scheduler->generate({specs.back()}, node.now);
  }
  node.collect();
  EXPECT_EQ(node.errors.size(), 1u);
  EXPECT_EQ(node.errors[specs[2].request].code, ErrorCode::resource_exhausted);
  EXPECT_GT(node.retry_after[specs[2].request], Duration::zero());
  EXPECT_EQ(node.ends[specs[2].request], 1);
  run_to_end(node);
  node.errors.clear();
  node.ends.clear();
  node.scheduler->generate({specs[2]}, node.now);
  run_to_end(node);
  for (const auto& spec : {specs[2]}) expect_truth(node, spec);
  expect_clean(node);
}

TEST(Scheduler, TheLoadOfWhatWaitsIsWhatTheCacheLacks) {
  SchedulerConfig config;
  config.sequences_max = 1;
  Node node(config, small_model());
  node.scheduler->generate({request_of(1, prompt_of(33), 1)}, node.now);
  run_to_end(node);
  node.scheduler->generate({request_of(2, prompt_of(5, 7), 50)}, node.now);
  node.step();
  const std::uint64_t running = node.scheduler->load().waiting_prefill_tokens;
  node.scheduler->generate({request_of(3, prompt_of(33), 1)}, node.now);
  EXPECT_EQ(node.scheduler->load().waiting, 1u);
  EXPECT_EQ(node.scheduler->load().waiting_prefill_tokens - running, 1u) << "the last token is computed always";
  node.scheduler->generate({request_of(4, prompt_of(33, 9), 1)}, node.now);
  EXPECT_EQ(node.scheduler->load().waiting_prefill_tokens - running, 1u + 33u);
  run_to_end(node);
  expect_clean(node);
}

TEST(Scheduler, DrainFinishesWhatRunsAndRefusesTheRest) {
  Node node({}, small_model());
  const auto running = request_of(1, prompt_of(9), 6), late = request_of(2, prompt_of(9), 6);
  node.scheduler->generate({running}, node.now);
  node.step();
  node.scheduler->drain();
  EXPECT_FALSE(node.scheduler->is_drained());
  EXPECT_TRUE(node.scheduler->load().draining);
  node.scheduler->generate({late}, node.now);
  run_to_end(node);
  EXPECT_TRUE(node.scheduler->is_drained());
  EXPECT_EQ(node.errors[late.request].code, ErrorCode::unavailable);
  expect_truth(node, running);
  expect_clean(node);
}

TEST(Scheduler, AbortedTokensLeaveThePrefixCache) {
  Node node({}, small_model());
  const auto spec = request_of(1, prompt_of(8), 100);
  node.scheduler->generate({spec}, node.now);
  for (int i = 0; i < 20; ++i) node.step();
  node.scheduler->abort({spec.request, 0, 5, "stop"});
  node.collect();
  EXPECT_EQ(node.scheduler->cache().cached(), 3u) << "8 prompt tokens and 4 of the 5 that count";
  EXPECT_EQ((node.finishes[{spec.request, 0}]), 1);
  expect_clean(node);
}

TEST(Scheduler, PromptLogprobsScoreEveryTokenDespiteACachedPrompt) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 5;
  Node node(config, small_model());
  auto spec = request_of(1, prompt_of(16), 2);
  node.scheduler->generate({spec}, node.now);
  run_to_end(node);
  spec = request_of(2, prompt_of(16), 0, 2);
  spec.sampling.prompt_logprobs = 2;
  node.scheduler->generate({spec}, node.now);
  run_to_end(node);
  EXPECT_EQ(node.prompt_scores[spec.request], 15u);
  EXPECT_EQ(node.ends[spec.request], 1);
  expect_clean(node);
}

// Random arrivals and aborts in a pool that is too small for them.
TEST(Scheduler, FuzzKeepsEveryPromise) {
  std::uint32_t planned_ahead = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FakeModel model = small_model(14);
    model.steps_in_flight = 1 + seed % 2;
    Random random(seed);
    SchedulerConfig config;
    config.prefix_cache = random.below(3) > 0;
    config.step_tokens_max = 4 + static_cast<std::uint32_t>(random.below(30));
    config.prefill_chunk_tokens_max = 1 + static_cast<std::uint32_t>(random.below(16));
    config.sequences_max = 1 + static_cast<std::uint32_t>(random.below(8));
    Node node(config, model);
    std::vector<protocol::GenerateSpec> specs;
    std::map<RequestId, bool> aborted;
    for (int step = 0; step < 250; ++step) {
      if (random.below(4) == 0) {
        node.settle();
        auto spec = request_of(specs.size() + 1, prompt_of(1 + random.below(30), static_cast<TokenId>(random.below(3))),
                               1 + static_cast<std::uint32_t>(random.below(20)),
                               random.below(4) == 0 ? 1 + static_cast<std::uint32_t>(random.below(3)) : 1);
        spec.priority = static_cast<std::int32_t>(random.below(3));
        node.scheduler->generate({spec}, node.now);
        specs.push_back(std::move(spec));
      }
      if (!specs.empty() && random.below(10) == 0) {
        node.settle();
        const auto& victim = specs[random.below(specs.size())];
        aborted[victim.request] = true;
        node.scheduler->abort({victim.request, {}, static_cast<std::uint32_t>(random.below(4)), "gone"});
      }
      if (random.below(30) == 0) {
        node.settle();
        node.scheduler->preempt_all();
      }
      node.step();
    }
    run_to_end(node, 20000);
    for (const auto& spec : specs) {
      ASSERT_EQ(node.ends[spec.request], 1) << "request " << spec.request.low;
      if (!aborted[spec.request]) expect_truth(node, spec);
    }
    expect_clean(node);
    planned_ahead += node.planned_ahead;
  }
  EXPECT_GT(planned_ahead, 1000u);
}

}  // namespace
}  // namespace penstock::worker
