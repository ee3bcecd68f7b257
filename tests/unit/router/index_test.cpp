// The prefix index and its event stream: single behaviours, and random histories against a naive model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/time/random.hpp"
#include "router/core/index/event_stream.hpp"
#include "router/core/index/prefix_index.hpp"

namespace penstock::router {
namespace {

using protocol::AllBlocksCleared;
using protocol::BlockRemoved;
using protocol::BlockStored;
using protocol::CacheEvents;
using protocol::Snapshot;

constexpr TimePoint start{std::chrono::hours(1)};

BlockHash block(std::uint64_t n) {
  return {n * 0x9E3779B97F4A7C15ull + 1, n};
}
std::vector<BlockHash> chain(std::uint64_t family, std::size_t count) {
  std::vector<BlockHash> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(block(family * 100000 + i));
  return out;
}
std::uint32_t depth(PrefixIndex& index, std::uint32_t slot, std::span<const BlockHash> blocks) {
  PrefixMatch match;
  index.match(blocks, match);
  return match.blocks.at(slot);
}

TEST(PrefixIndex, MatchStopsAtFirstMissingBlock) {
  PrefixIndex index;
  index.add_worker(0);
  index.add_worker(1);
  const auto blocks = chain(1, 40);
  index.store(0, 0, blocks);
  index.store(1, 0, std::span(blocks).first(10));
  index.store(1, 11, std::span(blocks).subspan(11));  // block 10 is missing: a hole
  EXPECT_EQ(depth(index, 0, blocks), 40u);
  EXPECT_EQ(depth(index, 1, blocks), 10u);
  index.store(1, 10, std::span(blocks).subspan(10, 1));
  EXPECT_EQ(depth(index, 1, blocks), 40u);
  index.remove(0, std::span(blocks).first(1));
  EXPECT_EQ(depth(index, 0, blocks), 0u);
}

TEST(PrefixIndex, StoringTwiceIsNotCountedTwice) {
  PrefixIndex index;
  index.add_worker(0);
  const auto blocks = chain(1, 8);
  index.store(0, 0, blocks);
  index.store(0, 0, blocks);
  EXPECT_EQ(index.blocks_of(0), 8u);
  index.remove(0, blocks);
  EXPECT_EQ(depth(index, 0, blocks), 0u);
  EXPECT_EQ(index.blocks(), 0u);
}

TEST(PrefixIndex, RemovedWorkerMatchesNothingAndItsSlotIsCleanedUp) {
  PrefixIndex index;
  for (std::uint32_t slot = 0; slot < 5; ++slot) index.add_worker(slot);
  const auto blocks = chain(1, 100);
  for (std::uint32_t slot = 0; slot < 5; ++slot) index.store(slot, 0, blocks);
  index.remove_worker(3);
  EXPECT_EQ(depth(index, 3, blocks), 0u);
  EXPECT_EQ(depth(index, 4, blocks), 100u);
  EXPECT_FALSE(index.is_clean(3));
  for (int i = 0; i < 1000 && index.sweep(64); ++i) {
  }
  ASSERT_TRUE(index.is_clean(3));
  index.add_worker(3);
  EXPECT_EQ(depth(index, 3, blocks), 0u);
  EXPECT_EQ(depth(index, 0, blocks), 100u);
}

TEST(PrefixIndex, PredictedBlocksMatchUntilTheyRunOut) {
  PrefixIndex index;
  index.add_worker(0);
  const auto blocks = chain(1, 20);
  index.predict(0, 0, blocks, start + std::chrono::seconds(4));
  EXPECT_EQ(depth(index, 0, blocks), 20u);
  index.store(0, 0, std::span(blocks).first(5));  // five come true
  EXPECT_EQ(index.predicted_blocks(), 15u);
  index.predict(0, 0, blocks, start + std::chrono::seconds(6));  // another request renews the rest
  index.expire(start + std::chrono::seconds(4));
  EXPECT_EQ(depth(index, 0, blocks), 20u);
  index.expire(start + std::chrono::seconds(6));
  EXPECT_EQ(depth(index, 0, blocks), 5u);
  EXPECT_EQ(index.predicted_blocks(), 0u);
  EXPECT_EQ(index.blocks(), 5u);
}

TEST(PrefixIndex, StaysBelowItsCapAndKeepsWhatIsUsed) {
  PrefixIndex index({1u << 20, 1024});
  index.add_worker(0);
  const auto hot = chain(1, 100);
  index.store(0, 0, hot);
  for (std::uint64_t family = 2; family < 2000; ++family) {
    index.store(0, 0, chain(family, 50));
    if (family % 4 == 0) {
      EXPECT_EQ(depth(index, 0, hot), 100u) << family;
    }
    ASSERT_LE(index.bytes(), 1u << 20);
  }
  EXPECT_GT(index.evicted(), 1000u);
  EXPECT_EQ(index.blocks(), index.blocks_of(0));
}

TEST(PrefixIndex, HoldsAHundredWorkers) {
  PrefixIndex index;
  const auto blocks = chain(1, 300);
  for (std::uint32_t slot = 0; slot < 200; ++slot) {
    index.add_worker(slot);
    index.store(slot, 0, std::span(blocks).first(slot + 1));
  }
  PrefixMatch match;
  index.match(blocks, match);
  for (std::uint32_t slot = 0; slot < 200; ++slot) EXPECT_EQ(match.blocks[slot], slot + 1);
  EXPECT_EQ(match.deepest, 200u);
}

/// A worker as the protocol sees it: its cache, its numbering, and the messages it would send.
struct ModelWorker {
  std::set<std::uint64_t> cache;
  std::uint64_t epoch = 1, sequence = 0;

  CacheEvents change(Random& random) {
    CacheEvents out{epoch, ++sequence, {}};
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
      const std::uint64_t family = random.below(6), first = random.below(30), count = 1 + random.below(10);
      const std::uint64_t kind = random.below(40);
      if (kind == 0) {
        cache.clear();
        out.events.push_back(AllBlocksCleared{});
      } else if (kind < 24) {
        BlockStored stored{static_cast<std::uint32_t>(first), {}, {}};
        for (std::uint64_t i = first; i < first + count; ++i) {
          cache.insert(family * 100000 + i);
          stored.blocks.push_back(block(family * 100000 + i));
        }
        out.events.push_back(stored);
      } else {
        BlockRemoved removed;
        for (std::uint64_t i = first; i < first + count; ++i) {
          cache.erase(family * 100000 + i);
          removed.blocks.push_back(block(family * 100000 + i));
        }
        out.events.push_back(removed);
      }
    }
    return out;
  }
  std::vector<Snapshot> snapshot(std::size_t part_blocks) const {
    std::vector<Snapshot> parts(1);
    std::size_t in_part = 0;
    for (std::uint64_t n : cache) {
      if (in_part == part_blocks) parts.emplace_back(), in_part = 0;
      parts.back().stored.push_back({static_cast<std::uint32_t>(n % 100000), {}, {block(n)}});
      ++in_part;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].epoch = epoch;
      parts[i].sequence = sequence;
      parts[i].part = static_cast<std::uint32_t>(i);
      parts[i].last = i + 1 == parts.size();
    }
    return parts;
  }
  std::uint32_t matched(std::uint64_t family, std::uint32_t length) const {
    std::uint32_t n = 0;
    while (n < length && cache.contains(family * 100000 + n)) ++n;
    return n;
  }
};

/// Several workers' messages on their ways, with losses, restarts and snapshots; compared whenever a stream is synced.
class StreamHistory {
 public:
  explicit StreamHistory(std::uint64_t seed) : random_(seed) {
    for (std::uint32_t slot = 0; slot < workers; ++slot) connect(slot);
  }
  void step() {
    now_ += std::chrono::milliseconds(10);
    const auto slot = static_cast<std::uint32_t>(random_.below(workers));
    ModelWorker& worker = models_[slot];
    EventStream& stream = *streams_[slot];
    switch (random_.below(24)) {
      case 0:  // a message is lost
        worker.change(random_);
        break;
      case 1:  // the cache starts anew under the same connection
        if (random_.below(4) == 0) worker.cache.clear(), ++worker.epoch, worker.sequence = random_.below(3);
        break;
      case 2:  // the process starts anew
        if (random_.below(4) == 0) {
          streams_[slot].reset();
          index_.remove_worker(slot);
          while (!index_.is_clean(slot)) index_.sweep(1u << 16);
          connect(slot);
        }
        break;
      case 3:
      case 4:
      case 5:
      case 6:  // the next part of a snapshot arrives
        deliver_part(slot);
        break;
      case 7:
        ask(slot, stream.tick(now_, std::chrono::milliseconds(500)));
        break;
      case 8:
        index_.sweep(random_.below(3000));
        break;
      case 9: {  // a repeat
        CacheEvents old{worker.epoch, worker.sequence, {BlockRemoved{chain(1, 30)}}};
        if (heard_[slot] && last_heard_[slot] == std::pair(worker.epoch, worker.sequence)) stream.on_events(old, now_);
        break;
      }
      default: {
        const CacheEvents message = worker.change(random_);
        ask(slot, stream.on_events(message, now_));
        heard_[slot] = true;
        last_heard_[slot] = {message.epoch, message.sequence};
      }
    }
    compare(slot);
  }
  std::uint64_t compared() const { return compared_; }
  const EventCounts& counts() const { return counts_; }

 private:
  static constexpr std::uint32_t workers = 4;
  void connect(std::uint32_t slot) {
    models_[slot].cache.clear();
    models_[slot].epoch += 1;
    models_[slot].sequence = random_.below(5);
    index_.add_worker(slot);
    streams_[slot] = std::make_unique<EventStream>(index_, counts_, slot, models_[slot].epoch, now_);
    heard_[slot] = false;
    parts_[slot].clear();
    ask(slot, SnapshotNeed::request);
  }
  void ask(std::uint32_t slot, SnapshotNeed need) {
    if (need == SnapshotNeed::request) wanted_[slot] = true;
  }
  void deliver_part(std::uint32_t slot) {
    auto& parts = parts_[slot];
    if (parts.empty() && wanted_[slot]) {
      wanted_[slot] = false;
      for (const Snapshot& part : models_[slot].snapshot(1 + random_.below(20))) parts.push_back(part);
    }
    if (parts.empty()) return;
    const Snapshot part = parts.front();
    parts.pop_front();
    if (random_.below(40) == 0) return;  // lost
    ask(slot, streams_[slot]->on_snapshot(part, now_));
  }
  void compare(std::uint32_t slot) {
    const bool up_to_date =
        !heard_[slot] || last_heard_[slot] == std::pair(models_[slot].epoch, models_[slot].sequence);
    if (!streams_[slot]->synced() || !heard_[slot] || !up_to_date) return;
    for (std::uint64_t family = 0; family < 6; ++family) {
      ASSERT_EQ(depth(index_, slot, chain(family, 40)), models_[slot].matched(family, 40)) << "family " << family;
    }
    ASSERT_EQ(index_.blocks_of(slot), models_[slot].cache.size());
    ++compared_;
  }

  Random random_;
  TimePoint now_ = start;
  PrefixIndex index_;
  EventCounts counts_;
  std::array<ModelWorker, workers> models_;
  std::array<std::unique_ptr<EventStream>, workers> streams_;
  std::array<std::deque<Snapshot>, workers> parts_;
  std::array<bool, workers> wanted_{}, heard_{};
  std::array<std::pair<std::uint64_t, std::uint64_t>, workers> last_heard_{};
  std::uint64_t compared_ = 0;
};

TEST(EventStream, EqualsTheNaiveModelAfterGapsSnapshotsAndRestarts) {
  EventCounts sum;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StreamHistory history(seed);
    for (int i = 0; i < 1500; ++i) {
      history.step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(history.compared(), 100u);
    sum.gaps += history.counts().gaps;
    sum.epochs += history.counts().epochs;
    sum.repeats += history.counts().repeats;
    sum.snapshots += history.counts().snapshots;
    sum.snapshots_discarded += history.counts().snapshots_discarded;
  }
  for (std::uint64_t count : {sum.gaps, sum.epochs, sum.repeats, sum.snapshots, sum.snapshots_discarded}) {
    EXPECT_GT(count, 20u);  // the histories do contain what they are about
  }
}

TEST(EventStream, OldBlocksServeWhileASnapshotIsOnItsWay) {
  PrefixIndex index;
  EventCounts counts;
  index.add_worker(0);
  EventStream stream(index, counts, 0, 7, start);
  const auto blocks = chain(1, 30);
  EXPECT_EQ(stream.on_snapshot({7, 10, 0, true, {{0, {}, blocks}}}, start), SnapshotNeed::none);
  EXPECT_TRUE(stream.synced());
  const CacheEvents late{7, 13, {BlockStored{0, {}, chain(2, 5)}}};  // 11 and 12 are lost
  EXPECT_EQ(stream.on_events(late, start), SnapshotNeed::request);
  EXPECT_EQ(depth(index, 0, blocks), 30u);
  EXPECT_EQ(depth(index, 0, chain(2, 5)), 5u);
  const std::vector<BlockHash> kept(blocks.begin(), blocks.begin() + 8);
  stream.on_snapshot({7, 12, 0, false, {{0, {}, kept}}}, start);
  EXPECT_EQ(depth(index, 0, blocks), 30u);  // half a snapshot changes nothing
  stream.on_snapshot({7, 12, 1, true, {}}, start);
  EXPECT_TRUE(stream.synced());
  EXPECT_EQ(depth(index, 0, blocks), 8u);
  EXPECT_EQ(depth(index, 0, chain(2, 5)), 5u);  // message 13 was put on top
}

TEST(EventStream, UnansweredRequestIsRepeated) {
  PrefixIndex index;
  EventCounts counts;
  index.add_worker(0);
  EventStream stream(index, counts, 0, 1, start);
  EXPECT_EQ(stream.tick(start + std::chrono::seconds(9), std::chrono::seconds(10)), SnapshotNeed::none);
  EXPECT_EQ(stream.tick(start + std::chrono::seconds(10), std::chrono::seconds(10)), SnapshotNeed::request);
  EXPECT_EQ(stream.tick(start + std::chrono::seconds(11), std::chrono::seconds(10)), SnapshotNeed::none);
}

TEST(EventStream, SnapshotsThatNeverFitAreNotAskedForAtFullSpeed) {
  PrefixIndex index;
  EventCounts counts;
  index.add_worker(0);
  EventStream stream(index, counts, 0, 1, start);
  const protocol::Snapshot of_another_epoch{2, 0, 0, true, {}};
  std::size_t asked = 0;
  TimePoint now = start;
  for (int i = 0; i < 10'000; ++i, now += std::chrono::milliseconds(1)) {  // every answer comes at once
    if (stream.on_snapshot(of_another_epoch, now) == SnapshotNeed::request) ++asked;
    if (stream.tick(now, std::chrono::seconds(5)) == SnapshotNeed::request) ++asked;
  }
  EXPECT_LE(asked, 3u);
  EXPECT_EQ(stream.on_snapshot({1, 0, 0, true, {{0, {}, chain(1, 10)}}}, now), SnapshotNeed::none);
  EXPECT_TRUE(stream.synced());
}

TEST(EventStream, NewEpochForgetsTheOldCache) {
  PrefixIndex index;
  EventCounts counts;
  index.add_worker(0);
  EventStream stream(index, counts, 0, 1, start);
  stream.on_snapshot({1, 0, 0, true, {{0, {}, chain(1, 10)}}}, start);
  stream.on_events({2, 1, {BlockStored{0, {}, chain(2, 3)}}}, start);
  EXPECT_FALSE(stream.synced());
  EXPECT_EQ(depth(index, 0, chain(1, 10)), 0u);
  EXPECT_EQ(depth(index, 0, chain(2, 3)), 3u);
  while (index.sweep(1u << 16)) {  // the room of the old cache is needed for the snapshot
  }
  EXPECT_EQ(stream.tick(start, std::chrono::seconds(10)), SnapshotNeed::request);
}

}  // namespace
}  // namespace penstock::router
