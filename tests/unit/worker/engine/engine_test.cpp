// The engine around the scheduler: what sinks hear, in which order and how often, and how it ends.
#include "worker/engine/engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"
#include "worker/executor/fake/fake_executor.hpp"

namespace penstock::worker {
namespace {

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
  protocol::Load last_load;
  std::uint64_t sequence = 0, snapshot_ticket = 0;
  std::size_t stored = 0, loads = 0;
  int drained = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

FakeModel small_model() {
  FakeModel model;
  model.blocks = 64;
  model.limits = {.step_tokens_max = 64, .sequences_max = 8, .sequence_tokens_max = 512, .vocabulary_size = 1000};
  return model;
}

protocol::Generate request_of(std::uint64_t id, std::uint32_t tokens_max, std::size_t prompt = 40) {
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

TEST(EngineCore, AStreamItsEventsAndASnapshot) {
  CoreHarness engine;
  engine.core.handle(request_of(1, 9));
  engine.run();
  EXPECT_EQ((engine.sink.tokens[{1, 1}]), 9u);
  EXPECT_EQ((engine.sink.ends[{1, 1}]), 1);
  EXPECT_GT(engine.sink.stored, 0u);
  engine.core.handle(SnapshotWanted{42});
  EXPECT_EQ(engine.sink.snapshot_ticket, 42u);
  EXPECT_EQ(engine.core.scheduler().cache().available(), 64u);
}

TEST(EngineCore, WakesForTheNextDeadlineAndForTheNextReport) {
  CoreHarness engine;
  engine.run();
  EXPECT_EQ(engine.core.wake_at(), engine.clock.now() + engine.config.load_interval);
  auto request = request_of(1, 100000);
  request.spec.sampling.tokens_max = 400;
  request.spec.deadline = std::chrono::milliseconds(20);
  engine.core.handle(request);
  EXPECT_EQ(engine.core.wake_at(), engine.clock.now() + request.spec.deadline);
  engine.run();
  EXPECT_EQ((engine.sink.errors[{1, 1}].code), ErrorCode::deadline_exceeded);
  EXPECT_EQ((engine.sink.ends[{1, 1}]), 1);
}

TEST(EngineCore, DrainIsSaidOnceAfterTheLastToken) {
  CoreHarness engine;
  engine.core.handle(request_of(1, 9));
  (void)engine.core.step();
  engine.core.handle(DrainEngine{});
  engine.core.handle(DrainEngine{});
  (void)engine.core.step();
  EXPECT_EQ(engine.sink.drained, 0);
  engine.core.handle(request_of(2, 9));
  engine.run();
  EXPECT_EQ(engine.sink.drained, 1);
  EXPECT_EQ((engine.sink.tokens[{1, 1}]), 9u);
  EXPECT_EQ((engine.sink.errors[{1, 2}].code), ErrorCode::unavailable);
  EXPECT_EQ((engine.sink.ends[{1, 2}]), 1);
  engine.clock.advance(engine.config.load_interval);
  (void)engine.core.step();
  EXPECT_TRUE(engine.sink.last_load.draining);
}

TEST(EngineCore, WithoutATransferPortPrefillAndExpectAreRefused) {
  CoreHarness engine;
  engine.core.handle(protocol::Prefill{request_of(1, 9).spec, {}});
  engine.core.handle(protocol::Expect{request_of(2, 9).spec, {}});
  engine.run();
  for (const std::uint64_t id : {1u, 2u}) {
    EXPECT_EQ((engine.sink.errors[{1, id}].code), ErrorCode::unsupported);
    EXPECT_EQ((engine.sink.ends[{1, id}]), 1);
  }
}

FakeModel two_in_flight() {
  FakeModel model = small_model();
  model.steps_in_flight = 2;
  return model;
}

// Without a command until it must, since whoever comes meanwhile would wait for that step too.
TEST(EngineCore, TheNextStepStartsShortlyBeforeTheEndOfTheOneUnderWay) {
  using std::chrono::milliseconds;
  CoreHarness engine(two_in_flight());
  engine.core.handle(request_of(1, 40));
  ASSERT_TRUE(*engine.core.step()) << "the prompt";
  ASSERT_TRUE(*engine.core.step()) << "the first decode step, whose length nobody knows";
  EXPECT_EQ(engine.executor.steps(), 3u) << "and the one behind it";
  engine.clock.advance(milliseconds(10));
  ASSERT_TRUE(*engine.core.step());
  EXPECT_EQ(engine.executor.steps(), 4u) << "the one before took no time";
  EXPECT_FALSE(*engine.core.step());
  EXPECT_EQ(engine.core.wake_at(), engine.clock.now() + std::chrono::microseconds(8750));
  engine.clock.advance(std::chrono::microseconds(8750));
  EXPECT_EQ(engine.executor.steps(), 4u);
  ASSERT_TRUE(*engine.core.step());
  EXPECT_EQ(engine.executor.steps(), 5u);
}

TEST(EngineCore, ACommandWaitsForTheStepsUnderWayAndNoOtherStartsBefore) {
  CoreHarness engine(two_in_flight());
  engine.core.handle(request_of(1, 40));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*engine.core.step());
  const std::uint64_t steps = engine.executor.steps();
  ASSERT_EQ(engine.core.scheduler().steps_under_way(), 1u);
  engine.core.handle(protocol::Abort{{1, 1}, {}, 0, "gone"});
  EXPECT_EQ((engine.sink.ends[{1, 1}]), 0);
  EXPECT_EQ(engine.core.wake_at(), engine.clock.now());
  ASSERT_TRUE(*engine.core.step());
  EXPECT_EQ(engine.executor.steps(), steps);
  EXPECT_FALSE(*engine.core.step());
  EXPECT_EQ((engine.sink.ends[{1, 1}]), 1);
  EXPECT_EQ(engine.core.scheduler().cache().available(), 64u);
}

TEST(EngineCore, WhoeverWaitsForAStepHearsOfTheEndToo) {
  CoreHarness engine(two_in_flight());
  engine.core.handle(request_of(1, 40));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*engine.core.step());
  engine.core.handle(request_of(2, 40));
  engine.core.fail_all(make_error(ErrorCode::unavailable, "the worker is stopping"));
  for (const std::uint64_t id : {1u, 2u}) {
    EXPECT_EQ((engine.sink.errors[{1, id}].code), ErrorCode::unavailable);
    EXPECT_EQ((engine.sink.ends[{1, id}]), 1);
  }
  EXPECT_EQ(engine.core.scheduler().cache().available(), 64u);
}

TEST(Engine, StreamsAreTheSameWithAStepAhead) {
  std::map<RequestId, std::size_t> tokens[2];
  for (const std::uint32_t steps : {1u, 2u}) {
    RecordingSink sink;
    SteadyClock clock;
    FakeModel model = small_model();
    model.steps_in_flight = steps;
    FakeExecutor executor(model);
    Engine engine({}, executor, nullptr, sink, clock);
    engine.start();
    for (std::uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(engine.post(request_of(id, 20 + 3 * id)));
    ASSERT_TRUE(engine.post(DrainEngine{}));
    ASSERT_TRUE(sink.wait_for([&] { return sink.drained == 1; }));
    engine.stop();
    tokens[steps - 1] = sink.tokens;
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

/// Breaks in its third step.
class BrokenExecutor final : public Executor {
 public:
  explicit BrokenExecutor(FakeModel model) : whole_(model) {}
  const ExecutorLimits& limits() const override { return whole_.limits(); }
  KvPoolView kv_pool() override { return whole_.kv_pool(); }
  void launch(const StepBatch& batch) override { whole_.launch(batch); }
  std::uint32_t steps_in_flight_max() const override { return whole_.steps_in_flight_max(); }
  Result<StepResult> collect() override {
    if (whole_.steps() > 2) return make_error(ErrorCode::internal, "the device fell off the bus");
    return whole_.collect();
  }

 private:
  FakeExecutor whole_;
};

TEST(Engine, ABrokenBackendEndsEveryRequestOnceAndIsSaidOnce) {
  for (const FakeModel& model : {small_model(), two_in_flight()}) {
    RecordingSink sink;
    SteadyClock clock;
    BrokenExecutor executor(model);
    Engine engine({}, executor, nullptr, sink, clock);
    for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(engine.post(request_of(id, 100)));
    engine.start();
    ASSERT_TRUE(sink.wait_for([&] { return !sink.broken.empty(); }));
    EXPECT_FALSE(engine.post(request_of(4, 1)));
    engine.stop();
    EXPECT_EQ(sink.broken, std::vector<std::string>{"the device fell off the bus"});
    for (std::uint64_t id = 1; id <= 3; ++id) {
      EXPECT_EQ((sink.ends[{1, id}]), 1);
      EXPECT_EQ((sink.errors[{1, id}].code), ErrorCode::unavailable);
    }
  }
}

TEST(Engine, StopEndsWhatRunsAndWhatWasOnlyPosted) {
  for (const bool started : {true, false}) {
    RecordingSink sink;
    SteadyClock clock;
    FakeExecutor executor(small_model());
    Engine engine({}, executor, nullptr, sink, clock);
    ASSERT_TRUE(engine.post(request_of(1, 470)));
    engine.start();
    if (started) {
      ASSERT_TRUE(sink.wait_for([&] { return sink.tokens[{1, 1}] > 0; }));
    }
    ASSERT_TRUE(engine.post(request_of(2, 470)));
    engine.stop();
    EXPECT_FALSE(engine.post(request_of(3, 1)));
    for (std::uint64_t id = 1; id <= 2; ++id) EXPECT_EQ((sink.ends[{1, id}]), 1) << id;
  }
}

TEST(Engine, AFullInboxRefusesCommandsButNoTransferEvents) {
  RecordingSink sink;
  SteadyClock clock;
  FakeExecutor executor(small_model());
  EngineConfig config;
  config.inbox_max = 2;
  Engine engine(config, executor, nullptr, sink, clock);  // not started: nobody empties it
  EXPECT_TRUE(engine.post(request_of(1, 2)));
  EXPECT_TRUE(engine.post(request_of(2, 2)));
  EXPECT_FALSE(engine.post(request_of(3, 2)));
  EXPECT_TRUE(engine.post(TransferEvent{SendEnded{}}));
  engine.start();
  EXPECT_TRUE(sink.wait_for([&] { return sink.ends[{1, 1}] == 1 && sink.ends[{1, 2}] == 1; }));
  EXPECT_TRUE(engine.post(request_of(3, 2)));
  EXPECT_TRUE(sink.wait_for([&] { return sink.ends[{1, 3}] == 1; }));
}

}  // namespace
}  // namespace penstock::worker
