#include "operator/runtime/expectations.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace penstock::ctl {
namespace {

using namespace std::chrono_literals;

struct Caches : CacheView {
  std::map<std::string, std::uint64_t, std::less<>> versions;
  std::set<std::string, std::less<>> live;

  std::uint64_t version(std::string_view type) const override {
    const auto at = versions.find(type);
    return at == versions.end() ? 0 : at->second;
  }
  bool is_live(std::string_view, std::string_view uid) const override { return live.contains(uid); }
};

class ExpectationsTest : public ::testing::Test {
 protected:
  TimePoint now{1h};
  Caches caches;
  Expectations expectations{5min};
};

TEST_F(ExpectationsTest, WaitsUntilTheCacheHasTheNewestWriteOfEachType) {
  expectations.on_written("svc", "pods", 7, now);
  expectations.on_written("svc", "pods", 9, now);
  expectations.on_written("svc", "services", 3, now);
  caches.versions = {{"pods", 8}, {"services", 3}};
  EXPECT_FALSE(expectations.are_met("svc", caches, now));
  caches.versions["pods"] = 9;
  EXPECT_TRUE(expectations.are_met("svc", caches, now));
  EXPECT_EQ(expectations.owners(), 0u);
}

TEST_F(ExpectationsTest, OthersAreNotHeldUp) {
  expectations.on_written("svc", "pods", 7, now);
  EXPECT_TRUE(expectations.are_met("other", caches, now));
}

TEST_F(ExpectationsTest, ADeletionIsMetWhenTheObjectIsGoneOrGoing) {
  caches.live = {"pod-1", "pod-2"};
  expectations.on_deleted("svc", "pods", "pod-1", now);
  EXPECT_FALSE(expectations.are_met("svc", caches, now));
  caches.live.erase("pod-1");
  EXPECT_TRUE(expectations.are_met("svc", caches, now));
}

TEST_F(ExpectationsTest, ANewObjectOfTheSameNameStartsWithoutNotes) {
  expectations.on_written("uid-of-the-first", "pods", 7, now);
  expectations.forget("uid-of-the-first");
  EXPECT_TRUE(expectations.are_met("uid-of-the-second", caches, now));
  EXPECT_EQ(expectations.owners(), 0u);
}

TEST_F(ExpectationsTest, ANoteThatIsNeverMetIsDroppedAndCounted) {
  expectations.on_written("svc", "pods", 7, now);
  EXPECT_FALSE(expectations.are_met("svc", caches, now + 5min));
  EXPECT_TRUE(expectations.are_met("svc", caches, now + 5min + 1s));
  EXPECT_EQ(expectations.expired(), 1u);
}

}  // namespace
}  // namespace penstock::ctl
