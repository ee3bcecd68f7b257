// One step ahead: the same streams as without it, whatever ends when, and nothing left of rows that were for nothing.
#include <gtest/gtest.h>

#include "tests/unit/worker/scheduler_harness.hpp"

namespace penstock::worker {
namespace {

FakeModel two_in_flight(std::uint32_t blocks = 64) {
  FakeModel model = small_model(blocks);
  model.steps_in_flight = 2;
  return model;
}

void run_to_end(Node& node) {
  for (int i = 0; i < 2000 && node.step(); ++i) {
  }
}

void expect_clean(Node& node) {
  EXPECT_EQ(node.scheduler->steps_under_way(), 0u);
  EXPECT_EQ(node.scheduler->cache().available(), node.config.blocks) << "leaked blocks";
}

/// The stream, cut behind the first of `ends`.
std::vector<TokenId> truth_until(const FakeModel& model, const protocol::GenerateSpec& spec, std::uint32_t choice) {
  std::vector<TokenId> out;
  for (const TokenId token : truth(model, spec, choice)) {
    out.push_back(token);
    const auto& ends = spec.sampling.stop_token_ids;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
  }
  return out;
}

void expect_truth(Node& node, const protocol::GenerateSpec& spec) {
  for (const auto& choice : spec.choices) {
    EXPECT_EQ((node.streams[{spec.request, choice.index}]), truth_until(node.model, spec, choice.index));
    EXPECT_EQ((node.finishes[{spec.request, choice.index}]), 1);
  }
  EXPECT_EQ(node.ends[spec.request], 1);
}

/// Starts a step, and the next one if that may be.
struct Started {
  explicit Started(Node& node) : first(node.scheduler->plan(node.now)) {
    node.executor.launch(first);
    next = node.scheduler->plan_ahead(node.now);
    if (next) node.executor.launch(*next);
  }
  const StepBatch& first;
  const StepBatch* next = nullptr;
};

// Every pair of lengths and every place of a stop id, with and without a cache, in pools down to the smallest.
TEST(SchedulerAhead, EndsAtAnyStepGiveTheSameStreams) {
  for (const std::uint32_t blocks : {64u, 12u, 9u}) {
    for (std::uint32_t length = 1; length <= 12; ++length) {
      for (std::uint32_t stop = 0; stop <= length; ++stop) {
        SCOPED_TRACE(std::to_string(blocks) + " blocks, " + std::to_string(length) + " tokens, stop at " +
                     std::to_string(stop));
        SchedulerConfig config;
        config.prefix_cache = (length + stop) % 3 != 0;
        Node node(config, two_in_flight(blocks));
        auto a = request_of(1, prompt_of(7), length), b = request_of(2, prompt_of(10, 2), 12, 2);
        if (stop > 0) a.sampling.stop_token_ids = {truth(node.model, a, 0)[stop - 1]};
        node.scheduler->generate({a}, node.now);
        node.scheduler->generate({b}, node.now);
        run_to_end(node);
        expect_truth(node, a);
        expect_truth(node, b);
        EXPECT_GT(node.planned_ahead, 0u);
        expect_clean(node);
      }
    }
  }
}

TEST(SchedulerAhead, AnAbortOrAPreemptionAtAnyStepChangesNoOther) {
  for (const bool aborts : {true, false}) {
    for (int at = 1; at < 24; ++at) {
      Node node({}, two_in_flight());
      const auto victim = request_of(1, prompt_of(9), 20, 2), other = request_of(2, prompt_of(9, 4), 20);
      node.scheduler->generate({victim}, node.now);
      node.scheduler->generate({other}, node.now);
      for (int i = 0; i < at; ++i) node.step();
      node.settle();
      if (aborts) node.scheduler->abort({victim.request, {}, 0, "gone"});
      if (!aborts) node.scheduler->preempt_all();
      run_to_end(node);
      if (!aborts) expect_truth(node, victim);
      EXPECT_EQ(node.ends[victim.request], 1);
      expect_truth(node, other);
      expect_clean(node);
    }
  }
}

TEST(SchedulerAhead, NotFiniteLogitsInTheStepBeforeFailOnlyTheirRequest) {
  const auto poison = request_of(1, prompt_of(6), 12), good = request_of(2, prompt_of(9, 3), 12);
  FakeModel model = two_in_flight();
  model.not_finite_after = truth(model, poison, 0)[3];
  Node node({}, model);
  node.scheduler->generate({poison}, node.now);
  node.scheduler->generate({good}, node.now);
  run_to_end(node);
  EXPECT_EQ(node.errors[poison.request].code, ErrorCode::internal);
  EXPECT_EQ((node.streams[{poison.request, 0}].size()), 4u);
  expect_truth(node, good);
  expect_clean(node);
}

// A block that the row computed for nothing is not in the cache, even if that row filled it.
TEST(SchedulerAhead, WhatWasComputedForNothingIsNotCached) {
  for (std::uint32_t length = 1; length <= 9; ++length) {
    std::uint32_t cached[2];
    for (const std::uint32_t steps : {1u, 2u}) {
      FakeModel model = two_in_flight();
      model.steps_in_flight = steps;
      Node node({}, model);
      auto spec = request_of(1, prompt_of(8), 12);
      spec.sampling.stop_token_ids = {truth(model, spec, 0)[length - 1]};
      node.scheduler->generate({spec}, node.now);
      run_to_end(node);
      expect_truth(node, spec);
      cached[steps - 1] = node.scheduler->cache().cached();
    }
    EXPECT_EQ(cached[0], cached[1]) << length;
  }
}

TEST(SchedulerAhead, PlansAheadOnlyWhatIsKnown) {
  struct Case {
    const char* what;
    bool goes_ahead;
    void (*change)(protocol::GenerateSpec&);
  };
  const Case cases[] = {
      {"greedy", true, [](protocol::GenerateSpec&) {}},
      {"drawn", true, [](protocol::GenerateSpec& spec) { spec.sampling.temperature = 1; }},
      {"log-probabilities", true, [](protocol::GenerateSpec& spec) { spec.sampling.logprobs = 3; }},
      {"a least length", false, [](protocol::GenerateSpec& spec) { spec.sampling.tokens_min = 8; }},
      {"a bias", false, [](protocol::GenerateSpec& spec) { spec.sampling.logit_bias = {{7, 1.0f}}; }},
      {"repetition", false, [](protocol::GenerateSpec& spec) { spec.sampling.repetition_penalty = 1.1f; }},
      {"presence", false, [](protocol::GenerateSpec& spec) { spec.sampling.presence_penalty = 0.5f; }},
      {"frequency", false, [](protocol::GenerateSpec& spec) { spec.sampling.frequency_penalty = 0.5f; }},
      {"the last token", false, [](protocol::GenerateSpec& spec) { spec.sampling.tokens_max = 2; }},
  };
  for (const Case& one : cases) {
    Node node({}, two_in_flight());
    auto spec = request_of(1, prompt_of(9), 20);
    one.change(spec);
    node.scheduler->generate({spec}, node.now);
    const Started prompt(node);
    EXPECT_EQ(prompt.next, nullptr) << one.what << ": a prompt's choices may fork";
    node.settle();
    const Started decode(node);
    EXPECT_EQ(decode.next != nullptr, one.goes_ahead) << one.what;
    node.settle();
    run_to_end(node);
    EXPECT_EQ(node.ends[spec.request], 1);
  }
}

TEST(SchedulerAhead, WaitsForTheResultsWhenSomebodyMayComeInOrIsLate) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 32;
  Node node(config, two_in_flight());
  auto first = request_of(1, prompt_of(9), 20), second = request_of(2, prompt_of(90, 3), 20);
  first.deadline = std::chrono::milliseconds(500);
  node.scheduler->generate({first}, node.now);
  node.step();
  EXPECT_NE(Started(node).next, nullptr);
  node.settle();
  node.scheduler->generate({second}, node.now);
  EXPECT_EQ(Started(node).next, nullptr) << "a prompt is computed";
  node.settle();
  node.step();
  node.settle();
  const StepBatch& batch = node.scheduler->plan(node.now);
  node.executor.launch(batch);
  node.now += std::chrono::seconds(1);
  EXPECT_EQ(node.scheduler->plan_ahead(node.now), nullptr) << "a deadline has passed";
  node.settle();
  run_to_end(node);
  EXPECT_EQ(node.errors[first.request].code, ErrorCode::deadline_exceeded);
  expect_truth(node, second);
  expect_clean(node);
}

// Who waits for blocks that nobody has given back would not come in anyway.
TEST(SchedulerAhead, GoesOnWhileTheFirstThatWaitsFindsNoRoom) {
  Node node({}, two_in_flight(12));
  const auto first = request_of(1, prompt_of(13), 20), second = request_of(2, prompt_of(33, 3), 4);
  node.scheduler->generate({first}, node.now);
  node.step();
  node.scheduler->generate({second}, node.now);
  for (int i = 0; i < 6; ++i) node.step();
  EXPECT_GE(node.planned_ahead, 5u);
  EXPECT_TRUE((node.streams[{second.request, 0}].empty()));
  run_to_end(node);
  expect_truth(node, first);
  expect_truth(node, second);
  expect_clean(node);
}

TEST(SchedulerAhead, AStepWhoseRowsAreAllForNothingIsTheLast) {
  Node node({}, two_in_flight());
  auto spec = request_of(1, prompt_of(9), 20);
  spec.sampling.stop_token_ids = {truth(node.model, spec, 0)[1]};
  node.scheduler->generate({spec}, node.now);
  node.scheduler->drain();
  node.step();
  node.step();
  EXPECT_EQ(node.ends[spec.request], 1);
  EXPECT_EQ(node.scheduler->steps_under_way(), 1u);
  EXPECT_FALSE(node.scheduler->is_drained());
  EXPECT_TRUE(node.step());
  EXPECT_TRUE(node.scheduler->is_drained());
  EXPECT_FALSE(node.step());
  expect_truth(node, spec);
  expect_clean(node);
}

}  // namespace
}  // namespace penstock::worker
