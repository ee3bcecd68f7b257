// The fleet as the proxy sees it: who gets a request and why, and what keeps load and cache state honest.
#include <gtest/gtest.h>

#include "common/time/random.hpp"
#include "tests/unit/router/fleet_world.hpp"

namespace penstock::router {
namespace {

TEST(Placement, LongerPrefixWinsOnEqualLoad) {
  World world;
  world.add();
  const WorkerRef holder = world.add();
  world.warm_up();
  const auto blocks = chain(1, 100);
  world.cache(holder, blocks);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(world.choose(1600, blocks).worker, holder);
  const Placement placement = world.choose(1600, blocks);
  EXPECT_EQ(placement.cached_tokens, 1599u);  // the last token is always computed
  EXPECT_EQ(placement.uncached_tokens, 1u);
  EXPECT_EQ(placement.why, "cost");
}

TEST(Placement, EqualWorkersShareAtRandomAndSeedsRepeat) {
  std::map<std::uint32_t, int> count;
  std::vector<std::uint32_t> first, second;
  for (auto* order : {&first, &second}) {
    World world({}, 42);
    for (int i = 0; i < 4; ++i) world.add();
    world.warm_up();
    for (int i = 0; i < 400; ++i) order->push_back(world.choose(100).worker.slot);
  }
  EXPECT_EQ(first, second);
  for (std::uint32_t slot : first) ++count[slot];
  for (std::uint32_t slot = 0; slot < 4; ++slot) EXPECT_GT(count[slot], 60);
}

TEST(Placement, CopiesOfAPrefixAreUsedAtOneHomeUnlessItIsBusy) {
  World world;
  const WorkerRef a = world.add(), b = world.add();
  world.warm_up();
  for (const WorkerRef worker : {a, b}) world.report(worker, {});
  std::map<std::uint32_t, int> homes;
  for (std::uint64_t prefix = 1; prefix <= 32; ++prefix) {
    const auto blocks = chain(prefix, 100);
    world.cache(a, blocks);
    world.cache(b, blocks);
    const WorkerRef home = world.choose(2000, blocks).worker;
    ++homes[home.slot];
    auto longer = blocks;
    for (const BlockHash& own : chain(1000 + prefix, 25)) longer.push_back(own);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(world.choose(2000, longer).worker, home) << "not in turn";
    protocol::Load busy;
    busy.waiting_prefill_tokens = 1000;  // more than half of the cached part
    world.report(home, busy);
    EXPECT_NE(world.choose(2000, longer).worker, home);
    world.report(home, {});
  }
  EXPECT_GE(homes[a.slot], 8);
  EXPECT_GE(homes[b.slot], 8);
}

TEST(Placement, WorkersThatJoinedTogetherAreAllNew) {
  World world;
  const WorkerRef holder = world.add(), other = world.add();
  world.now += std::chrono::milliseconds(200);
  for (const WorkerRef worker : {holder, other}) world.report(worker, {});
  const auto blocks = chain(1, 100);
  world.cache(holder, blocks);
  protocol::Load load;
  load.waiting_prefill_tokens = 3000;  // less than what the cache spares
  world.report(holder, load);
  const Placement placement = world.choose(1600, blocks);
  EXPECT_EQ(world.candidate(placement, holder).slow_start, 0);
  EXPECT_EQ(placement.worker, holder);
}

TEST(HotSpot, SharedSystemPromptDoesNotSendEverythingToOneWorker) {
  World world;
  std::vector<WorkerRef> workers;
  for (int i = 0; i < 8; ++i) workers.push_back(world.add());
  world.warm_up();
  const auto shared = chain(1, 64);
  world.cache(workers[0], shared);
  std::map<std::uint32_t, int> count;
  for (std::uint64_t i = 0; i < 64; ++i) {
    auto blocks = shared;
    for (const BlockHash& own : chain(100 + i, 64)) blocks.push_back(own);
    const Placement placement = world.send(2048, blocks);
    ASSERT_EQ(placement.outcome, Outcome::placed);
    ++count[placement.worker.slot];
  }
  EXPECT_EQ(count.size(), 8u);
  for (const auto& entry : count) EXPECT_LE(entry.second, 16);  // at most twice the fair share
}

TEST(HotSpot, DispatchCountsAtOnceBetweenReports) {
  World world;
  for (int i = 0; i < 4; ++i) world.add();
  world.warm_up();
  std::map<std::uint32_t, int> count;
  for (int i = 0; i < 40; ++i) ++count[world.send(1000).worker.slot];
  for (const auto& entry : count) EXPECT_EQ(entry.second, 10);
}

TEST(HotSpot, MissGoesToTheLeastLoaded) {
  World world;
  const WorkerRef busy = world.add(), idle = world.add();
  world.warm_up();
  world.report(busy, {4, 2, 8000});
  world.report(idle, {});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(world.choose(500).worker, idle);
}

TEST(HotSpot, OneHotWorkerIsPassedOverForThisRequestOnly) {
  World world;
  const WorkerRef hot = world.add(), warm = world.add();
  const WorkerRef third = world.add();
  world.warm_up();
  const auto of_hot = chain(1, 5000), of_warm = chain(2, 500);
  world.cache(hot, of_hot);
  world.cache(warm, of_warm);
  protocol::Load heavy;
  heavy.waiting_prefill_tokens = 60000;
  world.report(hot, heavy);
  world.report(warm, {});
  world.report(third, {});
  const Placement placement = world.choose(80000, of_hot);
  EXPECT_EQ(world.candidate(placement, hot).ineligible, Ineligible::hot);
  EXPECT_NE(placement.worker, hot);
  EXPECT_EQ(world.choose(8000, of_warm).worker, warm);  // affinity still works for others
}

TEST(HotSpot, UnknownLoadIsNotZeroLoad) {
  World world;
  const WorkerRef known = world.add();
  const WorkerRef silent = world.fleet.on_welcome(world.welcome(), "silent", {}, world.now).worker;
  world.warm_up();
  world.fleet.tick(world.now);  // the join grace is over: ready without a report
  ASSERT_EQ(world.fleet.state(silent), WorkerState::ready);
  world.warm_up();
  protocol::Load load;
  load.waiting_prefill_tokens = 5000;
  world.report(known, load);
  const Placement placement = world.choose(1000);
  EXPECT_EQ(world.candidate(placement, silent).wait, 5000);
}

TEST(HotSpot, RefusedWorkersIdlenessDoesNotShiftTheMean) {
  World world;
  const WorkerRef a = world.add(), b = world.add();
  const WorkerRef draining = world.add();
  world.warm_up();
  protocol::Load load;
  load.waiting_prefill_tokens = 50000;
  world.report(a, load);
  world.report(b, load);
  world.fleet.on_draining(draining);
  const Placement placement = world.choose(1000);
  EXPECT_EQ(world.candidate(placement, a).ineligible, Ineligible::no);
  EXPECT_EQ(world.candidate(placement, draining).ineligible, Ineligible::state);
}

TEST(LoadBooks, StaleReportsGiveWayToOwnAccounting) {
  World world;
  const WorkerRef a = world.add(), b = world.add();
  world.warm_up();
  protocol::Load load;
  load.waiting_prefill_tokens = 90000;
  world.report(a, load);
  world.report(b, {});
  EXPECT_EQ(world.choose(1000).worker, b);
  world.now += seconds(60);  // nobody reports any more; the old backlog is no news
  const Placement first = world.send(1000);
  const Placement second = world.send(1000);
  EXPECT_EQ(first.outcome, Outcome::placed);
  EXPECT_NE(first.worker, second.worker);
}

TEST(LoadBooks, LongStreamsStayCountedUntilTheyEnd) {
  World world;
  const WorkerRef a = world.add();
  world.warm_up();
  world.send(1000);
  world.fleet.on_first_token(world.last, std::nullopt);
  world.now += std::chrono::hours(2);
  world.fleet.tick(world.now);
  EXPECT_EQ(world.fleet.workers(world.now).at(0).requests_in_flight, 1u);
  world.fleet.on_finished(world.last);
  world.fleet.on_finished(world.last);  // a second end changes nothing
  EXPECT_EQ(world.fleet.workers(world.now).at(0).requests_in_flight, 0u);
  EXPECT_EQ(world.fleet.stats().requests_in_flight, 0u);
  EXPECT_EQ(world.candidate(world.choose(10), a).decode, 100);  // its own footprint only
}

TEST(LoadBooks, ReportAbsorbsWhatItHasSeen) {
  World world;
  const WorkerRef a = world.add();
  world.warm_up();
  world.report(a, {});
  world.send(1000);
  world.send(500);
  EXPECT_EQ(world.candidate(world.choose(10), a).wait, 1500);
  protocol::Load load;
  load.requests_seen = 1;
  load.waiting_prefill_tokens = 700;  // of the first
  world.report(a, load);
  EXPECT_EQ(world.candidate(world.choose(10), a).wait, 1200);
}

TEST(LoadBooks, WhatEndsAfterTheReportIsTakenOffIt) {
  World world;
  const WorkerRef a = world.add();
  world.warm_up();
  world.report(a, {});
  world.send(3000);
  const DispatchId first = world.last;
  world.send(1000);
  protocol::Load load;
  load.requests_seen = 2;
  load.running = 2;
  load.waiting_prefill_tokens = 3600;  // 400 of the first are computed
  load.kv_blocks_total = 1000;
  load.kv_blocks_free = 600;
  world.report(a, load);
  world.fleet.on_first_token(first, std::nullopt);
  EXPECT_EQ(world.candidate(world.choose(10), a).wait, 1000) << "never less than ours that goes on";
  world.fleet.on_finished(first);
  world.fleet.on_finished(world.last);
  const Candidate idle = world.candidate(world.choose(10), a);
  EXPECT_EQ(idle.wait, 0);
  EXPECT_EQ(idle.decode, 100) << "its own footprint, and nobody else's";
  load.waiting_prefill_tokens = 50000;  // another router's
  load.running = 3;
  world.report(a, load);
  const Candidate busy = world.candidate(world.choose(10), a);
  EXPECT_EQ(busy.wait, 50000);
  EXPECT_GT(busy.decode, 100);
}

TEST(Caps, FullWorkersMeanQueueAndTheCapIsNeverPassed) {
  World world;
  world.add();
  world.add();
  world.warm_up();
  int placed = 0;
  while (placed < 1000 && world.send(10).outcome == Outcome::placed) ++placed;
  EXPECT_EQ(placed, 2 * (16 + 4));
  EXPECT_EQ(world.choose(10).outcome, Outcome::must_queue);
  world.fleet.on_finished(world.last);
  EXPECT_EQ(world.choose(10).outcome, Outcome::placed);
}

TEST(Caps, RejectsWhatCannotFitAndWhatNobodyServes) {
  World world;
  const Placement none = world.choose(10);
  EXPECT_EQ(none.outcome, Outcome::rejected);
  EXPECT_EQ(none.error.code, ErrorCode::unavailable);
  EXPECT_GT(none.retry_after, Duration::zero());
  const WorkerRef a = world.add();
  EXPECT_EQ(world.choose(100000).error.code, ErrorCode::invalid_argument);
  world.fleet.on_suspect(a);
  EXPECT_EQ(world.choose(10).outcome, Outcome::must_queue);
  world.fleet.on_alive(a);
  EXPECT_EQ(world.choose(10).outcome, Outcome::placed);
  const InstanceId failed = world.fleet.find(a)->instance;
  PlacementRequest request;
  request.prompt_tokens = 10;
  request.excluded = std::span(&failed, 1);
  EXPECT_EQ(world.fleet.choose(request, world.now).error.code, ErrorCode::unavailable);
}

TEST(Caps, NearlyFullKvIsAvoided) {
  World world;
  const WorkerRef tight = world.add(), roomy = world.add();
  world.warm_up();
  protocol::Load load;
  load.kv_blocks_free = 100;
  world.report(tight, load);
  world.report(roomy, {});
  const Placement placement = world.choose(400);
  EXPECT_EQ(placement.worker, roomy);
  EXPECT_GT(world.candidate(placement, tight).barrier, 50 * world.candidate(placement, roomy).barrier);
}

TEST(Membership, WrongHashesAreRefusedLoudly) {
  World world;
  protocol::Welcome message = world.welcome();
  message.hash_probe = {{1, 2}, {3, 4}};
  const std::vector<BlockHash> expected = {{1, 2}, {3, 5}};
  const WelcomeVerdict verdict = world.fleet.on_welcome(message, "w", expected, world.now);
  EXPECT_EQ(verdict.refusal, Refusal::hash_probe);
  EXPECT_FALSE(verdict.detail.empty());
  EXPECT_FALSE(world.fleet.readiness().can_serve);
  EXPECT_EQ(world.choose(10).outcome, Outcome::rejected);
  message.block_tokens = 32;
  EXPECT_EQ(world.fleet.on_welcome(message, "w", expected, world.now).refusal, Refusal::block_size);
}

TEST(Membership, RestartedWorkerStartsEmptyAndOldMessagesAreFencedOff) {
  World world;
  const WorkerRef old = world.add();
  const auto blocks = chain(1, 50);
  world.cache(old, blocks);
  world.send(800, blocks);
  const DispatchId dispatch = world.last;
  world.fleet.on_disconnect(old);
  const WorkerRef fresh = world.add();
  EXPECT_EQ(world.choose(800, blocks).cached_tokens, 0u);
  world.cache(old, blocks);
  world.report(old, {9, 9, 99999});
  world.fleet.on_finished(dispatch);
  EXPECT_EQ(world.choose(800, blocks).cached_tokens, 0u);
  EXPECT_EQ(world.candidate(world.choose(800), fresh).wait, 0);
  EXPECT_GE(world.fleet.stats().stale_messages, 2u);
}

TEST(Membership, NewWorkerIsEasedIn) {
  World world;
  const WorkerRef old = world.add();
  world.warm_up();
  const WorkerRef fresh = world.add();
  world.report(old, {});
  int to_fresh = 0;
  for (int i = 0; i < 12; ++i) to_fresh += world.send(2000).worker == fresh ? 1 : 0;
  EXPECT_LE(to_fresh, 3);
}

TEST(Predictions, SiblingsFollowBeforeAnyEventComes) {
  World world;
  for (int i = 0; i < 8; ++i) world.add();
  world.warm_up();
  const auto blocks = chain(1, 200);
  const WorkerRef first = world.send(3200, blocks).worker;
  EXPECT_EQ(world.choose(3200, blocks).worker, first);
  world.fleet.on_aborted(world.last);
  EXPECT_EQ(world.choose(3200, blocks).cached_tokens, 0u);
  world.send(3200, blocks);
  world.now += seconds(5);
  EXPECT_EQ(world.choose(3200, blocks).cached_tokens, 0u);
}

TEST(Policies, EachNameDecidesInItsOwnWay) {
  EXPECT_FALSE(parse_policy("best"));
  for (const char* name : {"kv-aware", "least-load", "round-robin", "random"}) {
    FleetSettings settings;
    settings.policy.kind = *parse_policy(name);
    World world(settings);
    for (int i = 0; i < 4; ++i) world.add();
    world.warm_up();
    const auto blocks = chain(1, 100);
    const WorkerRef holder = world.choose(10).worker;
    world.cache(holder, blocks);
    std::map<std::uint32_t, int> count;
    std::vector<std::uint32_t> order;
    for (int i = 0; i < 40; ++i) order.push_back(world.choose(1600, blocks).worker.slot);
    for (std::uint32_t slot : order) ++count[slot];
    if (settings.policy.kind == PolicyKind::kv_aware) {
      EXPECT_EQ(count.size(), 1u);
    } else {
      EXPECT_EQ(count.size(), 4u) << name;
    }
    if (settings.policy.kind != PolicyKind::round_robin) continue;
    for (const auto& entry : count) EXPECT_EQ(entry.second, 10);
  }
}

TEST(Policies, RandomHistoriesKeepTheInvariants) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    FleetSettings settings;
    settings.policy.kind = static_cast<PolicyKind>(seed % 4);
    World world(settings, seed);
    std::vector<WorkerRef> workers;
    std::vector<DispatchId> open;
    for (int step = 0; step < 1500; ++step) {
      world.now += milliseconds(random.below(200));
      const std::uint64_t action = random.below(20);
      if (action == 0 && workers.size() < 6) workers.push_back(world.add(static_cast<Role>(random.below(3))));
      if (action == 1 && !workers.empty() && random.below(4) == 0) {
        world.fleet.on_disconnect(workers.back());
        workers.pop_back();
      }
      if (action == 2) world.fleet.tick(world.now);
      if (action < 5 || workers.empty()) continue;
      if (action < 12 && !open.empty()) {
        const std::size_t at = random.below(open.size());
        if (random.below(2) == 0) world.fleet.on_first_token(open[at], std::nullopt);
        random.below(2) == 0 ? world.fleet.on_finished(open[at]) : world.fleet.on_aborted(open[at]);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const auto tokens = static_cast<std::uint32_t>(1 + random.below(3000));
      const Placement placement = world.send(tokens, chain(random.below(20), tokens / 16));
      if (placement.outcome != Outcome::placed) continue;
      open.push_back(world.last);
      ASSERT_EQ(world.fleet.state(placement.worker), WorkerState::ready);
      ASSERT_LE(placement.cached_tokens, placement.cached_tokens_best);
      ASSERT_EQ(placement.cached_tokens + placement.uncached_tokens, tokens);
      if (placement.prefill) {
        ASSERT_NE(*placement.prefill, placement.worker);
      }
      for (const WorkerView& view : world.fleet.workers(world.now)) ASSERT_LE(view.requests_in_flight, 20u);
    }
    for (DispatchId id : open) world.fleet.on_finished(id);
    for (const WorkerView& view : world.fleet.workers(world.now)) ASSERT_EQ(view.requests_in_flight, 0u);
    ASSERT_EQ(world.fleet.stats().requests_in_flight, 0u);
  }
}

}  // namespace
}  // namespace penstock::router
