#include <gtest/gtest.h>

#include <map>

#include "common/time/random.hpp"
#include "router/core/admission/limits.hpp"
#include "router/core/admission/queue.hpp"

namespace penstock::router {
namespace {

constexpr TimePoint start{std::chrono::hours(1)};
using std::chrono::milliseconds;
using std::chrono::seconds;

Waiting waiting(std::uint64_t id, const std::string& tenant, std::uint64_t tokens,
                PriorityClass priority = PriorityClass::normal) {
  return {id, tenant, priority, tokens, 1000, std::nullopt};
}

std::vector<std::uint64_t> take(AdmissionQueue& queue, std::size_t count, TimePoint now = start) {
  std::vector<std::uint64_t> order;
  while (order.size() < count) {
    const auto head = queue.front();
    if (!head) break;
    EXPECT_EQ(queue.front(), head);  // asking changes nothing
    queue.pop(*head, now);
    order.push_back(*head);
  }
  return order;
}

TEST(AdmissionQueue, OneTenantIsServedInOrder) {
  AdmissionQueue queue;
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_FALSE(queue.push(waiting(id, "a", 100000 / id), start));
  EXPECT_EQ(take(queue, 9), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

TEST(AdmissionQueue, TenantsShareByUncachedTokensNotByRequests) {
  AdmissionQueue queue;
  std::uint64_t id = 0;
  for (int i = 0; i < 400; ++i) ASSERT_FALSE(queue.push(waiting(++id, "heavy", 10000), start));
  std::map<std::uint64_t, bool> is_light;
  for (int i = 0; i < 400; ++i) {
    ASSERT_FALSE(queue.push(waiting(++id, "light", 500), start));
    is_light[id] = true;
  }
  std::uint64_t heavy = 0, light = 0;
  for (std::uint64_t popped : take(queue, 210)) (is_light.contains(popped) ? light : heavy) += 1;
  EXPECT_NEAR(static_cast<double>(light * 500), static_cast<double>(heavy * 10000), 20000);
  EXPECT_GT(light, 180u);
}

TEST(AdmissionQueue, LowerClassesKeepAShare) {
  AdmissionQueue queue({1024, 64ull << 20, seconds(30), 4096, 8});
  for (std::uint64_t id = 1; id <= 100; ++id)
    ASSERT_FALSE(queue.push(waiting(id, "a", 10, PriorityClass::high), start));
  for (std::uint64_t id = 1001; id <= 1100; ++id)
    ASSERT_FALSE(queue.push(waiting(id, "b", 10, PriorityClass::bulk), start));
  std::size_t low = 0;
  const auto order = take(queue, 80);
  for (std::uint64_t id : order) low += id > 1000 ? 1 : 0;
  EXPECT_EQ(low, 10u);
  EXPECT_LT(order.front(), 1000u);
}

TEST(AdmissionQueue, RefusesBeyondRequestsAndBytes) {
  AdmissionQueue queue({2, 2500, seconds(30), 4096, 8});
  EXPECT_FALSE(queue.push(waiting(1, "a", 10), start));
  EXPECT_FALSE(queue.push(waiting(2, "a", 10), start));
  const auto refused = queue.push(waiting(3, "a", 10), start);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error.code, ErrorCode::unavailable);
  EXPECT_GE(refused->retry_after, seconds(1));
  EXPECT_FALSE(queue.push(waiting(3, "a", 10, PriorityClass::high), start));  // another class has its own bound
  AdmissionQueue bytes({100, 2500, seconds(30), 4096, 8});
  EXPECT_FALSE(bytes.push(waiting(1, "a", 10), start));
  EXPECT_FALSE(bytes.push(waiting(2, "a", 10), start));
  EXPECT_TRUE(bytes.push(waiting(3, "a", 10), start));
}

TEST(AdmissionQueue, RefusesEarlyWhenTheWaitWouldBeTooLong) {
  AdmissionQueue queue;
  std::uint64_t id = 0;
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(queue.push(waiting(++id, "a", 1000), start));
  for (int i = 0; i < 10; ++i) take(queue, 1, start + seconds(i));  // about 1000 tokens a second leave
  const TimePoint now = start + seconds(10);
  for (int i = 0; i < 100; ++i) {
    const auto refused = queue.push(waiting(++id, "a", 1000), now);
    if (!refused) continue;
    EXPECT_NEAR(static_cast<double>(queue.tokens()), 30000, 3000);
    return;
  }
  FAIL() << "never refused";
}

TEST(AdmissionQueue, WaitAndDeadlineEnd) {
  AdmissionQueue queue;
  Waiting hurried = waiting(1, "a", 10);
  hurried.deadline = start + seconds(2);
  ASSERT_FALSE(queue.push(hurried, start));
  ASSERT_FALSE(queue.push(waiting(2, "a", 10), start));
  EXPECT_EQ(queue.next_expiry(), start + seconds(2));
  EXPECT_TRUE(queue.expire(start + milliseconds(1999)).empty());
  EXPECT_EQ(queue.expire(start + seconds(2)), std::vector<std::uint64_t>{1});
  EXPECT_EQ(queue.expire(start + seconds(30)), std::vector<std::uint64_t>{2});
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(AdmissionQueue, RandomHistoriesKeepTheBooks) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    AdmissionQueue queue({50, 1u << 20, seconds(5), 256, 4});
    std::map<std::uint64_t, std::uint64_t> model;  // id to bytes
    TimePoint now = start;
    for (std::uint64_t id = 1; id < 3000; ++id) {
      now += milliseconds(random.below(20));
      Waiting request = waiting(id, std::string(1, static_cast<char>('a' + random.below(5))), random.below(3000),
                                static_cast<PriorityClass>(random.below(3)));
      request.bytes = random.below(100);
      if (!queue.push(request, now)) model[id] = request.bytes;
      if (random.below(3) == 0 && !model.empty()) {
        EXPECT_TRUE(queue.remove(model.begin()->first));
        model.erase(model.begin());
      }
      if (const auto head = queue.front(); head && random.below(2) == 0) {
        ASSERT_TRUE(model.contains(*head));
        queue.pop(*head, now);
        model.erase(*head);
      }
      for (std::uint64_t over : queue.expire(now)) EXPECT_EQ(model.erase(over), 1u);
      std::uint64_t bytes = 0;
      for (const auto& entry : model) bytes += entry.second;
      ASSERT_EQ(queue.size(), model.size());
      ASSERT_EQ(queue.bytes(), bytes);
      ASSERT_EQ(queue.front().has_value(), !model.empty());
    }
  }
}

TEST(TenantLimiter, LimitsRequestsAtOnce) {
  TenantLimiter limiter({2, 0, 0});
  EXPECT_FALSE(limiter.enter("a", 10, start));
  EXPECT_FALSE(limiter.enter("a", 10, start));
  const auto refused = limiter.enter("a", 10, start);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->error.code, ErrorCode::resource_exhausted);
  EXPECT_FALSE(limiter.enter("b", 10, start));
  limiter.leave("a", 5, start);
  EXPECT_FALSE(limiter.enter("a", 10, start));
}

TEST(TenantLimiter, LimitsTokensAndChargesOutput) {
  TenantLimiter limiter({64, 6000, 0});
  EXPECT_FALSE(limiter.enter("a", 4000, start));
  limiter.leave("a", 3000, start);  // 1000 in debt
  const auto refused = limiter.enter("a", 1000, start);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(std::chrono::duration<double>(refused->retry_after).count(), 20, 0.1);
  EXPECT_TRUE(limiter.enter("a", 1000, start + seconds(19)));
  EXPECT_FALSE(limiter.enter("a", 1000, start + seconds(21)));
}

TEST(TenantLimiter, LimitsRequestsAMinute) {
  TenantLimiter limiter({64, 0, 2});
  EXPECT_FALSE(limiter.enter("a", 1, start));
  EXPECT_FALSE(limiter.enter("a", 1, start));
  EXPECT_TRUE(limiter.enter("a", 1, start));
  EXPECT_FALSE(limiter.enter("a", 1, start + seconds(31)));
}

TEST(RetryBudget, IsATenthOfTheRequestsAndOneEach) {
  RetryBudget budget({0.1, 10, 1});
  EXPECT_FALSE(budget.try_retry(1));
  int granted = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.on_request();
    granted += budget.try_retry(0) ? 1 : 0;
  }
  EXPECT_NEAR(granted, 110, 2);  // the reserve and a tenth
}

}  // namespace
}  // namespace penstock::router
