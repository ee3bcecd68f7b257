// What the tests of the engine share: a sink that records, requests, and a core on a manual clock.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"
#include "worker/executor/fake/fake_executor.hpp"

namespace penstock::worker {

/// Records what it hears. Calls come from one thread at a time; wait_for() may be on another.
class RecordingSink final : public EngineSink {
 public:
  void on_step(protocol::Step step) override {
    const std::lock_guard lock(mutex_);
    for (auto& choice : step.choices) {
      EXPECT_EQ(ends[choice.request], 0) << "a token after the end";
      tokens[choice.request] += choice.tokens.size();
    }
    changed_.notify_all();
  }
  void on_request_error(protocol::RequestError error) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(ends[error.request], 0) << "an error after the end";
    errors[error.request] = error.error;
  }
  void on_transfer_status(protocol::TransferStatus) override {}
  void on_cache_events(protocol::CacheEvents events) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(events.sequence, ++sequence);
    stored += events.events.size();
  }
  void on_snapshot(std::uint64_t ticket, std::vector<protocol::Snapshot> parts) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(parts.back().sequence, sequence) << "a snapshot covers the events before it";
    EXPECT_TRUE(parts.back().last);
    snapshot_ticket = ticket;
  }
  void on_load(const protocol::Load& load) override {
    const std::lock_guard lock(mutex_);
    last_load = load;
    ++loads;
  }
  void on_request_end(RequestId request, std::uint32_t) override {
    const std::lock_guard lock(mutex_);
    ++ends[request];
    changed_.notify_all();
  }
  void on_drained() override {
    const std::lock_guard lock(mutex_);
    ++drained;
    changed_.notify_all();
  }
  void on_stuck(const StuckStep& step) override {
    const std::lock_guard lock(mutex_);
    stuck.push_back(step);
    changed_.notify_all();
  }
  void on_broken(const Error& error) override {
    const std::lock_guard lock(mutex_);
    broken.push_back(error.message);
    changed_.notify_all();
  }

  /// Waits, at most 10 s, until `condition` holds under the lock.
  template <class Condition>
  bool wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }

  std::map<RequestId, std::size_t> tokens;
  std::map<RequestId, Error> errors;
  std::map<RequestId, int> ends;
  std::vector<std::string> broken;
  std::vector<StuckStep> stuck;
  protocol::Load last_load;
  std::uint64_t sequence = 0, snapshot_ticket = 0;
  std::size_t stored = 0, loads = 0;
  int drained = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

inline FakeModel small_model() {
  FakeModel model;
  model.blocks = 64;
  model.limits = {.step_tokens_max = 64, .sequences_max = 8, .sequence_tokens_max = 512, .vocabulary_size = 1000};
  return model;
}

inline protocol::Generate request_of(std::uint64_t id, std::uint32_t tokens_max, std::size_t prompt = 40) {
  protocol::Generate generate;
  generate.spec.request = {1, id};
  for (std::size_t i = 0; i < prompt; ++i) generate.spec.prompt.push_back(static_cast<TokenId>((i + id) % 1000));
  generate.spec.choices.push_back({0, {}});
  generate.spec.sampling.temperature = 0;
  generate.spec.sampling.tokens_max = tokens_max;
  return generate;
}

struct CoreHarness {
  explicit CoreHarness(FakeModel model = small_model(), EngineConfig settings = {})
      : config(settings),
        executor(model),
        hasher(config, model.geometry.block_tokens),
        core(config, executor, nullptr, sink, clock, nullptr, hasher, 7) {}

  void run(int steps_max = 1000) {
    for (int i = 0; i < steps_max; ++i) {
      const auto ran = core.step();
      if (!ran || !*ran) return;
      clock.advance(std::chrono::milliseconds(1));
    }
  }

  ManualClock clock;
  RecordingSink sink;
  EngineConfig config;
  FakeExecutor executor;
  BlakePrefixHasher hasher;
  EngineCore core;
};

inline FakeModel two_in_flight() {
  FakeModel model = small_model();
  model.steps_in_flight = 2;
  return model;
}

}  // namespace penstock::worker
