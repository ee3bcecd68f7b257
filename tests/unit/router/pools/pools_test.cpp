// Prefixes settle where pools that are just large enough for all of them hold them, whatever the order of things.
#include <gtest/gtest.h>

#include "tests/unit/router/fleet_world.hpp"
#include "tests/unit/router/pools/pools.hpp"

namespace penstock::router {
namespace {

constexpr double settled = 0.89;  // of 332 blocks, 300 are of the prefix: 0.904 can be found

TEST(Pools, PrefixesThatFitStayCached) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_GE(Pools({}, seed).run().hit_late, settled) << "seed " << seed;
  }
}

TEST(Pools, TwoRoutersThatKnowNothingOfEachOtherAgree) {
  PoolsOptions options;
  options.routers = 2;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    EXPECT_GE(Pools(options, seed).run().hit_late, settled) << "seed " << seed;
  }
}

// The first worker cannot hold all prefixes and has had all the work when the second one comes. What it still holds
// must count all the same, or everything moves and the second one's cache is ruined as well.
TEST(Pools, PrefixesSettleAfterAWorkerHasJoined) {
  PoolsOptions options;
  options.join_gap = std::chrono::seconds(2);
  options.requests = 2400;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const PoolsResult result = Pools(options, seed).run();
    EXPECT_GE(result.hit_late, settled) << "seed " << seed;
    EXPECT_LE(result.imbalance, 1.3) << "seed " << seed;
  }
}

TEST(RecentWork, TipsTheScalesAndOutweighsNoCache) {
  World world;
  const WorkerRef old = world.add();
  const auto blocks = chain(1, 200);
  world.cache(old, blocks);
  for (int i = 0; i < 400; ++i) {  // two million tokens of work, all done
    world.send(5000);
    world.fleet.on_first_token(world.last, std::nullopt);
    world.fleet.on_finished(world.last);
  }
  const WorkerRef fresh = world.add();
  world.now += seconds(31);  // slow start is over, half of the work forgotten
  for (const WorkerRef worker : {old, fresh}) world.report(worker, {});
  EXPECT_EQ(world.choose(3300, blocks).worker, old) << "what is cached there is worth more";
  EXPECT_EQ(world.choose(3300).worker, fresh) << "what is cached nowhere goes to who had less to do";
  EXPECT_LE(world.candidate(world.choose(3300), old).recent, 3300);
  EXPECT_EQ(world.candidate(world.choose(3300), fresh).recent, 0);
}

}  // namespace
}  // namespace penstock::router
