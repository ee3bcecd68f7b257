// The engine around the scheduler: what sinks hear, in which order and how often, and how it ends.
#include "worker/engine/engine.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "tests/unit/worker/engine/engine_harness.hpp"

namespace penstock::worker {
namespace {

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

/// Answers when it is told to, from its third step on.
class HangingExecutor final : public Executor {
 public:
  explicit HangingExecutor(FakeModel model) : whole_(model) {}
  const ExecutorLimits& limits() const override { return whole_.limits(); }
  KvPoolView kv_pool() override { return whole_.kv_pool(); }
  void launch(const StepBatch& batch) override { whole_.launch(batch); }
  Result<StepResult> collect() override {
    std::unique_lock lock(mutex_);
    if (whole_.steps() > 2) let_go_.wait(lock, [this] { return goes_on_; });
    return whole_.collect();
  }
  std::string state() const override { return "rank 1: all_reduce 7 (waits)"; }
  void go_on() {
    const std::lock_guard lock(mutex_);
    goes_on_ = true;
    let_go_.notify_all();
  }

 private:
  FakeExecutor whole_;
  std::mutex mutex_;
  std::condition_variable let_go_;
  bool goes_on_ = false;
};

TEST(Engine, AStepThatTakesTooLongIsSaidOnceWithWhereItIs) {
  RecordingSink sink;
  SteadyClock clock;
  HangingExecutor executor(small_model());
  EngineConfig config;
  config.step_limit = std::chrono::milliseconds(50);
  Engine engine(config, executor, nullptr, sink, clock);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(engine.post(request_of(id, 10, 5)));
  engine.start();
  const bool is_said = sink.wait_for([&] { return !sink.stuck.empty(); });
  executor.go_on();
  ASSERT_TRUE(is_said);
  ASSERT_TRUE(sink.wait_for([&] { return sink.ends[{1, 3}] == 1; }));
  engine.stop();
  ASSERT_EQ(sink.stuck.size(), 1u);
  EXPECT_EQ(sink.stuck[0].number, 3u);
  EXPECT_GT(sink.stuck[0].taken, config.step_limit);
  EXPECT_EQ(sink.stuck[0].sequences, 3u);
  EXPECT_EQ(sink.stuck[0].decode_tokens, 3u);
  EXPECT_EQ(sink.stuck[0].steps_under_way, 1u);
  EXPECT_EQ(sink.stuck[0].backend, "rank 1: all_reduce 7 (waits)");
}

TEST(EngineCore, AStepIsStuckFromItsStartOrFromTheEndOfTheOneBefore) {
  using std::chrono::milliseconds;
  CoreHarness engine(two_in_flight());
  engine.core.handle(request_of(1, 40));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(*engine.core.step());
  engine.clock.advance(milliseconds(10));
  EXPECT_FALSE(engine.core.find_stuck(milliseconds(10)));
  engine.clock.advance(milliseconds(1));
  const auto stuck = engine.core.find_stuck(milliseconds(10));
  ASSERT_TRUE(stuck);
  EXPECT_EQ(stuck->number, 3u);
  EXPECT_EQ(stuck->taken, milliseconds(11));
  ASSERT_TRUE(*engine.core.step());
  EXPECT_FALSE(engine.core.find_stuck(milliseconds(10)));
  engine.core.handle(protocol::Abort{{1, 1}, {}, 0, "gone"});
  engine.run();
  engine.clock.advance(milliseconds(100));
  EXPECT_FALSE(engine.core.find_stuck(milliseconds(10))) << "nothing is under way";
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
