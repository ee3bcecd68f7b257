// Host memory that KV of a device passes through: which bytes lie where, and when a slot comes back.
#include "worker/transfer/ucx/staging.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/fake_device_pool.hpp"

namespace penstock::worker::transfer::test {
namespace {

TEST(PinnedSlots, ASlotComesBackWithTheLastPointer) {
  FakeDevices devices;
  FakeDevicePool pool(devices, 16);
  auto slots = PinnedSlots::make(pool, 2, 64);
  ASSERT_TRUE(slots);
  auto first = slots->take(), second = slots->take();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_GE(std::abs(first.get() - second.get()), 64);
  EXPECT_EQ(slots->take(), nullptr);
  auto copy = first;
  first.reset();
  EXPECT_EQ(slots->take(), nullptr) << "a send still reads from it";
  copy.reset();
  EXPECT_NE(slots->take(), nullptr);
}

TEST(PinnedSlots, APointerOutlivesTheSlots) {
  FakeDevices devices;
  FakeDevicePool pool(devices, 16);
  std::shared_ptr<std::byte> kept;
  {
    auto slots = PinnedSlots::make(pool, 1, 64);
    ASSERT_TRUE(slots);
    kept = slots->take();
  }
  kept.get()[63] = std::byte{7};
  EXPECT_EQ(kept.get()[63], std::byte{7});
}

TEST(Arrivals, RunsLieBehindEachOtherAndGoToTheirOwnPlaces) {
  std::array<std::byte, 100> slot{};
  const std::array<ReadRun, 3> runs{{{0, 500, 40}, {900, 100, 10}, {64, 300, 50}}};
  const auto places = arrivals(slot.data(), slot.size(), runs);
  ASSERT_TRUE(places);
  const std::vector<HostRun> expected{{slot.data(), 500, 40}, {slot.data() + 40, 100, 10}, {slot.data() + 50, 300, 50}};
  EXPECT_EQ(*places, expected);
}

TEST(Arrivals, WhatIsLargerThanTheSlotIsRefused) {
  std::array<std::byte, 99> slot{};
  const std::array<ReadRun, 2> runs{{{0, 0, 50}, {0, 50, 50}}};
  EXPECT_FALSE(arrivals(slot.data(), slot.size(), runs));
  const std::array<ReadRun, 2> huge{{{0, 0, 50}, {0, 0, ~0ull}}};
  EXPECT_FALSE(arrivals(slot.data(), slot.size(), huge));
}

TEST(Pack, PiecesFillTheSlotAndNeighboursAreCopiedAtOnce) {
  Departure departure;
  departure.slot = std::make_shared<std::byte>();
  const std::byte* const slot = departure.slot.get();
  std::deque<OwedRun> owed{{7, 0, 1000, 50, 0}, {7, 1, 1050, 30, 0}, {7, 2, 4000, 60, 0}};
  const auto copies = pack(departure, owed, 100, 32);
  EXPECT_EQ(departure.bytes, 100u);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].offset, 1000u);
  EXPECT_EQ(copies[0].bytes, 80u);  // two runs that are neighbours in the pool
  EXPECT_EQ(copies[1].offset, 4000u);
  EXPECT_EQ(copies[1].bytes, 20u);
  EXPECT_EQ(copies[1].host - slot, 80);
  ASSERT_EQ(departure.pieces.size(), 4u);  // 32, 18, 30, 20
  EXPECT_EQ(departure.pieces[1].offset, 32u);
  EXPECT_EQ(departure.pieces[1].pool_offset, 1032u);
  EXPECT_EQ(departure.pieces[3].bytes, 20u);
  ASSERT_EQ(owed.size(), 1u);
  EXPECT_EQ(owed.front().sent, 20u);
  Departure rest;
  rest.slot = departure.slot;
  pack(rest, owed, 100, 32);
  EXPECT_EQ(rest.bytes, 40u);
  EXPECT_EQ(rest.pieces.front().offset, 20u);
  EXPECT_TRUE(owed.empty());
}

}  // namespace
}  // namespace penstock::worker::transfer::test
