// The shell around the pure reconciles: order of writes, barrier, back-off, what a refusal means, the lease.
#include "operator/runtime/controller.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <deque>
#include <map>

#include "common/kube/model/known_types.hpp"

namespace penstock::ctl {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

const kube::Key key{"ns", "a"};

kube::Create create(const std::string& name, kube::DryRun dry_run = kube::DryRun::no) {
  kube::Create write{kube::pods, "ns", {}, dry_run};
  write.body = json::Object{{"metadata", json::Object{{"name", name}}}};
  return write;
}
kube::ApiStatus refusal(int code, std::string reason, std::string message = {}) {
  kube::ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  return status;
}

/// Answers as told, in order; otherwise with the next version.
class FakeWriter final : public Writer {
 public:
  asio::awaitable<kube::ApiResult<json::Value>> write(const kube::Write& write) override {
    written.push_back(kube::describe(write));
    if (!answers.empty()) {
      const auto answer = answers.front();
      answers.pop_front();
      if (answer) co_return kube::ApiResult<json::Value>(*answer);
    }
    const std::string version = std::to_string(++newest);
    json::Object meta{{"resourceVersion", version}};
    json::Value object = json::Object{{"metadata", std::move(meta)}};
    co_return kube::ApiResult<json::Value>(std::move(object));
  }
  asio::awaitable<std::optional<std::uint64_t>> newest_version(const kube::ResourceType&, const std::string&) override {
    ++asked;
    co_return std::optional<std::uint64_t>(newest);
  }
  bool may_write() const override { return leads; }

  std::vector<std::string> written;
  std::deque<std::optional<kube::ApiStatus>> answers;
  std::uint64_t newest = 100;
  int asked = 0;
  bool leads = true;
};

class FakeCaches final : public CacheView {
 public:
  std::uint64_t version(std::string_view) const override { return at; }
  bool is_live(std::string_view, std::string_view uid) const override { return uid == live; }
  std::uint64_t at = ~std::uint64_t{0};
  std::string live;
};

class ControllerTest : public ::testing::Test {
 protected:
  void start(ControllerOptions options = {}) {
    options.name = "test";
    options.barrier_poll = 1ms;
    controller = std::make_unique<Controller>(
        io.get_executor(), options,
        [this](const kube::Key& one, const std::optional<WriteFailure>& failure) {
          looks.push_back(one.name);
          failures.push_back(failure);
          return next;
        },
        [this](const kube::Key&) { return uid; }, writer, caches, clock, make_controller_probe(metrics, "test"),
        log::Logger());
    controller->start();
  }
  void TearDown() override {
    if (!controller) return;
    bool done = false;
    asio::co_spawn(io, controller->stop(Duration{}), [&](const std::exception_ptr&) { done = true; });
    run_until([&] { return done; });
  }
  bool run_until(const std::function<bool()>& condition) {
    const TimePoint end = clock.now() + 5s;
    while (!condition()) {
      if (clock.now() > end) return false;
      io.restart();
      io.run_one_for(5ms);
    }
    return true;
  }
  bool looked(std::size_t times) {
    return run_until([&] { return looks.size() >= times; });
  }
  double counted(const std::string& name) const {
    const std::string page = metrics.expose(), line = name + "{controller=\"test\"} ";
    const auto at = page.find("\n" + line);
    return at == std::string::npos ? -1 : std::stod(page.substr(at + 1 + line.size()));
  }

  asio::io_context io;
  SteadyClock clock;
  metrics::Registry metrics;
  FakeWriter writer;
  FakeCaches caches;
  std::string uid = "u";
  Outcome next;
  std::vector<std::string> looks;
  std::vector<std::optional<WriteFailure>> failures;
  std::unique_ptr<Controller> controller;
};

TEST_F(ControllerTest, WritesInOrderAndStopsAtTheFirstRefusal) {
  next.writes = {create("a"), create("b"), create("c")};
  writer.answers = {std::nullopt, refusal(422, "Invalid", "no")};
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(looked(2)) << "it comes back";
  EXPECT_EQ(writer.written[0], "create Pod ns/a");
  EXPECT_EQ(writer.written[1], "create Pod ns/b");
  EXPECT_NE(writer.written[2], "create Pod ns/c");
  EXPECT_FALSE(failures[0]);
  ASSERT_TRUE(failures[1]);
  EXPECT_TRUE(failures[1]->status.is(kube::Failure::invalid));
  EXPECT_FALSE(failures[1]->of_dry_run);
}

TEST_F(ControllerTest, WhatIsThereAlreadyCountsAsMade) {
  next.writes = {create("a"), create("b")};
  writer.answers = {refusal(409, "AlreadyExists")};
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(run_until([&] { return writer.written.size() == 2; }));
  EXPECT_TRUE(run_until([&] { return controller->is_idle(); }));
  EXPECT_EQ(counted("penstock_operator_reconcile_failures_total"), 0);
}

TEST_F(ControllerTest, ARefusedTrialIsToldAsOneAndNothingAfterItIsWritten) {
  next.writes = {create("a", kube::DryRun::yes), create("b")};
  writer.answers = {refusal(403, "Forbidden", "violates PodSecurity")};
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(looked(2));
  EXPECT_EQ(writer.written[0], "try Pod ns/a");
  ASSERT_TRUE(failures[1]);
  EXPECT_TRUE(failures[1]->of_dry_run);
}

TEST_F(ControllerTest, AFullQuotaIsNoVerdictOnWhatIsTried) {
  next.writes = {create("a", kube::DryRun::yes), create("b")};
  writer.answers = {refusal(403, "Forbidden", "exceeded quota: q")};
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(run_until([&] { return writer.written.size() == 2; }));
  EXPECT_EQ(writer.written[1], "create Pod ns/b");
}

TEST_F(ControllerTest, AKeyWaitsBehindTheBarrierUntilTheCachesHaveItsWrites) {
  next.writes = {create("a")};
  caches.at = 100;
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(run_until([&] { return writer.written.size() == 1; }));
  next.writes.clear();
  controller->add(key, Priority::user);
  for (int i = 0; i < 20; ++i) io.run_one_for(1ms);
  EXPECT_EQ(looks.size(), 1u) << "the cache hasn't seen version 101";
  caches.at = 101;
  EXPECT_TRUE(looked(2));
}

TEST_F(ControllerTest, ATrialMakesNothingToWaitFor) {
  next.writes = {create("a", kube::DryRun::yes)};
  caches.at = 100;
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(run_until([&] { return writer.written.size() == 1 && controller->is_idle(); }));
  controller->add(key, Priority::user);
  EXPECT_TRUE(looked(2));
}

TEST_F(ControllerTest, AnAnswerThatNeverCameIsWaitedForLikeOneThatDid) {
  next.writes = {create("a")};
  writer.answers = {refusal(0, "")};
  caches.at = 99;
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(run_until([&] { return writer.asked == 1; }));
  next.writes.clear();
  for (int i = 0; i < 20; ++i) io.run_one_for(1ms);
  EXPECT_EQ(looks.size(), 1u) << "it may have happened: version 100 is what the server has";
  caches.at = 100;
  EXPECT_TRUE(looked(2));
}

TEST_F(ControllerTest, FailuresBackOffAndAConflictIsNone) {
  next.writes = {create("a")};
  for (int i = 0; i < 3; ++i) writer.answers.push_back(refusal(409, "Conflict"));
  for (int i = 0; i < 2; ++i) writer.answers.push_back(refusal(500, "InternalError"));
  start();
  controller->add(key, Priority::user);
  ASSERT_TRUE(looked(6));
  ASSERT_TRUE(run_until([&] { return controller->is_idle(); }));
  EXPECT_EQ(counted("penstock_operator_conflicts_total"), 3);
  EXPECT_EQ(counted("penstock_operator_reconcile_failures_total"), 2);
  EXPECT_EQ(counted("penstock_operator_writes_total"), 1);
  EXPECT_FALSE(failures.back() == std::nullopt) << "the last one still knew of the failure before it";
}

TEST_F(ControllerTest, WhoLostTheLeaseWritesNothing) {
  next.writes = {create("a"), create("b")};
  writer.leads = false;
  start();
  controller->add(key, Priority::user);
  for (int i = 0; i < 20; ++i) io.run_one_for(1ms);
  EXPECT_TRUE(writer.written.empty());
}

TEST_F(ControllerTest, LooksAgainWhenTheReconcileSaysSo) {
  next.requeue_after = 5ms;
  start();
  controller->add(key, Priority::user);
  EXPECT_TRUE(looked(3));
}

TEST_F(ControllerTest, ABurstOfPodEventsIsOneLook) {
  ControllerOptions options;
  options.rest = 50ms;
  start(options);
  controller->add(key, Priority::pod);
  ASSERT_TRUE(looked(1));
  ASSERT_TRUE(run_until([&] { return controller->is_idle(); }));
  for (int i = 0; i < 100; ++i) controller->add(key, Priority::pod);
  ASSERT_TRUE(looked(2));
  const TimePoint until = clock.now() + 30ms;
  run_until([&] { return clock.now() > until; });
  EXPECT_EQ(looks.size(), 2u);
}

TEST_F(ControllerTest, ManyKeysAreWorkedOnByAllWorkers) {
  start();
  for (int i = 0; i < 50; ++i) controller->add({"ns", "k" + std::to_string(i)}, Priority::sync);
  EXPECT_TRUE(looked(50));
  EXPECT_TRUE(run_until([&] { return controller->is_idle(); }));
}

}  // namespace
}  // namespace penstock::ctl
