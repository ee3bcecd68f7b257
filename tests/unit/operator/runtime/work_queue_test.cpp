#include "operator/runtime/work_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::ctl {
namespace {

using namespace std::chrono_literals;

const kube::Key a{"ns", "a"}, b{"ns", "b"}, c{"ns", "c"};

class WorkQueueTest : public ::testing::Test {
 protected:
  std::vector<std::string> drain() {
    std::vector<std::string> names;
    while (auto key = queue.take(now)) {
      names.push_back(key->name);
      queue.done(*key, now);
    }
    return names;
  }
  TimePoint now{1h};
  WorkQueue queue{1};
};

TEST_F(WorkQueueTest, HoldsAKeyOnceHoweverOftenItIsAdded) {
  for (int i = 0; i < 100; ++i) queue.add(a, Priority::pod, now);
  EXPECT_EQ(queue.waiting(), 1u);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"}));
}

TEST_F(WorkQueueTest, EditsOvertakePodEventsWhichOvertakeTheStart) {
  queue.add(a, Priority::sync, now);
  queue.add(b, Priority::pod, now);
  queue.add(c, Priority::user, now);
  EXPECT_EQ(drain(), (std::vector<std::string>{"c", "b", "a"}));
}

TEST_F(WorkQueueTest, ABetterPriorityMovesAWaitingKey) {
  queue.add(a, Priority::sync, now);
  queue.add(b, Priority::pod, now);
  queue.add(a, Priority::user, now);
  queue.add(a, Priority::sync, now);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(WorkQueueTest, ABurstOfPodEventsAfterALookIsOneLook) {
  queue = WorkQueue(1, {}, 200ms);
  queue.add(a, Priority::pod, now);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"})) << "the first is looked at now";
  for (int i = 0; i < 10; ++i) {
    now += 10ms;
    queue.add(a, Priority::pod, now);
  }
  EXPECT_TRUE(drain().empty());
  EXPECT_EQ(queue.next_due(), TimePoint(1h + 200ms));
  now = TimePoint(1h + 200ms);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"}));
  now += 200ms;
  queue.add(a, Priority::pod, now);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"})) << "it has rested";
}

TEST_F(WorkQueueTest, ALookMaySayHowLongItsKeyRests) {
  queue = WorkQueue(1, {}, 200ms);
  for (const auto& [key, rest] : {std::pair(a, 3s), std::pair(b, 1s)}) {
    queue.add(key, Priority::pod, now);
    queue.done(*queue.take(now), now, rest);
    queue.add(key, Priority::pod, now);
  }
  now += 1s;
  EXPECT_EQ(drain(), (std::vector<std::string>{"b"})) << "the shorter rest began later and ends first";
  now += 2s;
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"}));
  queue.add(a, Priority::pod, now);
  now += 200ms;
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"})) << "after a look that said nothing, the queue's own";
}

TEST_F(WorkQueueTest, PeopleDoNotWaitForTheRestOfAKey) {
  queue = WorkQueue(1, {}, 200ms);
  queue.add(a, Priority::pod, now);
  drain();
  queue.add(a, Priority::pod, now);
  queue.add(a, Priority::user, now);
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"}));
}

TEST_F(WorkQueueTest, AnEventWhileAKeyIsWorkedOnWaitsForItsRest) {
  queue = WorkQueue(1, {}, 200ms);
  queue.add(a, Priority::pod, now);
  const auto key = queue.take(now);
  queue.add(a, Priority::pod, now);
  queue.done(*key, now);
  EXPECT_TRUE(drain().empty());
  now += 200ms;
  EXPECT_EQ(drain(), (std::vector<std::string>{"a"}));
}

TEST_F(WorkQueueTest, AKeyIsWithOneWorkerAtATime) {
  queue.add(a, Priority::user, now);
  ASSERT_TRUE(queue.take(now));
  queue.add(a, Priority::pod, now);
  EXPECT_FALSE(queue.take(now));
  queue.done(a, now);
  EXPECT_TRUE(queue.take(now));
  queue.done(a, now);
  EXPECT_FALSE(queue.take(now));
}

TEST_F(WorkQueueTest, TheLowestPriorityIsServedInSixteenTurns) {
  queue.add(c, Priority::sync, now);
  int turns = 0;
  for (bool served = false; !served; ++turns) {
    ASSERT_LT(turns, 17);
    queue.add(a, Priority::user, now);
    const auto key = queue.take(now);
    ASSERT_TRUE(key);
    served = *key == c;
    queue.done(*key, now);
  }
}

TEST_F(WorkQueueTest, TheEarliestDelayWins) {
  queue.add_at(a, now + 10s);
  queue.add_at(a, now + 2s);
  queue.add_at(a, now + 5s);
  EXPECT_EQ(queue.next_due(), now + 2s);
  EXPECT_FALSE(queue.take(now + 1s));
  EXPECT_TRUE(queue.take(now + 2s));
  EXPECT_EQ(queue.delayed(), 0u);
}

TEST_F(WorkQueueTest, FailuresBackOffByKeyUpToTheLimitAndForgetOnSuccess) {
  Duration last{};
  for (int i = 0; i < 40; ++i) {
    const TimePoint due = queue.add_after_failure(a, now);
    const Duration delay = due - now;
    EXPECT_GE(delay, std::min<Duration>(5ms * (1ll << std::min(i, 30)), 1000s));
    EXPECT_LE(delay, 1250s);
    last = delay;
    now = due;
    ASSERT_TRUE(queue.take(now));
    queue.done(a, now);
  }
  EXPECT_GE(last, 1000s);
  EXPECT_LE(queue.add_after_failure(b, now) - now, 7ms);
  queue.forget_failures(a);
  EXPECT_LE(queue.add_after_failure(a, now) - now, 7ms);
}

TEST_F(WorkQueueTest, TellsHowLongTheOldestHasWaited) {
  queue.add(a, Priority::sync, now);
  queue.add(b, Priority::user, now + 3s);
  EXPECT_EQ(queue.oldest(now + 5s), Duration(5s));
}

}  // namespace
}  // namespace penstock::ctl
