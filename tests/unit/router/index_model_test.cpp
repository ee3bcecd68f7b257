// The prefix index against a plain model with many workers: what a match says, at every depth, and what the byte cap
// may cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "common/time/random.hpp"
#include "router/core/index/prefix_index.hpp"

namespace penstock::router {
namespace {

constexpr TimePoint start{std::chrono::hours(1)};
constexpr std::uint64_t families = 24, family_blocks = 48;

std::vector<BlockHash> part(std::uint64_t family, std::uint64_t first, std::uint64_t count) {
  std::vector<BlockHash> out;
  for (std::uint64_t i = first; i < first + count; ++i)
    out.push_back({(family + 1) * 0x9E3779B97F4A7C15ull + i, i + 1});
  return out;
}

/// Workers that store, remove, predict and are forgotten, in runs and alone, with holes in the chains.
class ManyWorkers {
 public:
  enum class Predictions : std::uint8_t { made, none };

  ManyWorkers(std::uint64_t seed, std::uint32_t workers, PrefixIndexSettings settings, Predictions predictions)
      : random_(seed), index_(settings), predictions_(predictions), held_(workers), predicted_(workers) {
    for (std::uint32_t slot = 0; slot < workers; ++slot) index_.add_worker(slot);
  }
  void step() {
    const auto slot = static_cast<std::uint32_t>(random_.below(held_.size()));
    const std::uint64_t family = random_.below(families), first = random_.below(family_blocks);
    const std::uint64_t count = 1 + random_.below(family_blocks - first), kind = random_.below(100);
    const auto blocks = part(family, random_.below(2) == 0 ? 0 : first, count);
    if (kind < 50) {
      index_.store(slot, 0, blocks);
      held_[slot].insert(blocks.begin(), blocks.end());
      for (const BlockHash& block : blocks) predicted_[slot].erase(block);
    } else if (kind < 75) {
      index_.remove(slot, blocks);
      for (const BlockHash& block : blocks) held_[slot].erase(block);
    } else if (kind < 85) {
      if (predictions_ == Predictions::none) return;
      index_.predict(slot, 0, blocks, start + std::chrono::seconds(1));
      for (const BlockHash& block : blocks) {
        if (!held_[slot].contains(block)) predicted_[slot].insert(block);
      }
    } else if (kind < 90) {
      index_.unpredict(slot, blocks);
      for (const BlockHash& block : blocks) predicted_[slot].erase(block);
    } else if (kind < 93) {
      index_.clear(slot);
      held_[slot].clear();
    } else if (kind == 93) {
      index_.expire(start + std::chrono::seconds(1));
      for (auto& blocks_of : predicted_) blocks_of.clear();
    } else {
      index_.sweep(random_.below(3000));
    }
  }
  /// By slot, the plain way: block by block and worker by worker.
  std::vector<std::uint32_t> expected(const std::vector<BlockHash>& blocks) const {
    std::vector<std::uint32_t> out;
    for (std::size_t slot = 0; slot < held_.size(); ++slot) {
      std::uint32_t depth = 0;
      const auto has = [&](const BlockHash& block) {
        return held_[slot].contains(block) || predicted_[slot].contains(block);
      };
      while (depth < blocks.size() && has(blocks[depth])) ++depth;
      out.push_back(depth);
    }
    return out;
  }
  std::vector<BlockHash> prompt() { return part(random_.below(families), 0, 1 + random_.below(family_blocks)); }
  PrefixIndex& index() { return index_; }

 private:
  Random random_;
  PrefixIndex index_;
  Predictions predictions_;
  std::vector<std::set<BlockHash>> held_, predicted_;
};

TEST(PrefixIndexModel, MatchesAreThoseOfAPlainSearch) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ManyWorkers workers(seed, seed % 3 == 0 ? 3 : 130, {}, ManyWorkers::Predictions::made);
    PrefixMatch match;
    for (int i = 0; i < 600; ++i) {
      workers.step();
      const auto prompt = workers.prompt();
      workers.index().match(prompt, match);
      const auto expected = workers.expected(prompt);
      ASSERT_EQ(match.blocks, expected) << "step " << i;
      ASSERT_EQ(match.deepest, *std::max_element(expected.begin(), expected.end()));
    }
  }
}

TEST(PrefixIndexModel, AtItsCapTheIndexForgetsAndInventsNothing) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    // Room for the empty tables and for few sets.
    const std::uint64_t bytes_max = PrefixIndex().bytes() + (64 << 10);
    ManyWorkers workers(seed, 130, {bytes_max, 256}, ManyWorkers::Predictions::none);
    PrefixMatch match;
    for (int i = 0; i < 3000; ++i) {
      workers.step();
      ASSERT_LE(workers.index().bytes(), bytes_max);
      if (i % 4 != 0) continue;
      const auto prompt = workers.prompt();
      workers.index().match(prompt, match);
      const auto expected = workers.expected(prompt);
      for (std::size_t slot = 0; slot < expected.size(); ++slot) ASSERT_LE(match.blocks[slot], expected[slot]);
    }
    EXPECT_GT(workers.index().evicted(), 0u);
  }
}

}  // namespace
}  // namespace penstock::router
