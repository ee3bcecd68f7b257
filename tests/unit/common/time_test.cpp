#include <gtest/gtest.h>

#include <set>

#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock {
namespace {

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  const TimePoint before = clock.now();
  EXPECT_EQ(clock.now(), before);
  clock.advance(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.now() - before, std::chrono::milliseconds(5));
}

TEST(Random, RepeatsFromItsSeedAndStaysBelowTheBound) {
  Random a(42), b(42);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto value = a.below(7);
    EXPECT_EQ(value, b.below(7));
    ASSERT_LT(value, 7u);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 7u);
}

// Known answers published with the Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

}  // namespace
}  // namespace penstock
