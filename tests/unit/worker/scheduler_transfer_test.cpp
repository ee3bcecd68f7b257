// Disaggregated against aggregated: the same tokens, whatever is lost, aborted or preempted on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/time/random.hpp"
#include "tests/unit/worker/scheduler_pair.hpp"

namespace penstock::worker {
namespace {

TEST(SchedulerTransfer, DisaggregatedEqualsAggregated) {
  for (const bool cache : {false, true}) {
    for (const std::size_t length : {1u, 3u, 4u, 5u, 16u, 29u}) {
      for (const std::uint32_t chunk : {3u, 4u, 16u}) {
        SchedulerConfig config;
        config.prefix_cache = cache;
        config.prefill_chunk_tokens_max = chunk;
        Pair pair(config);
        for (std::uint64_t id = 1; id <= 3; ++id) {  // the later ones find the prompt cached on both sides
          const auto spec = request_of(id, prompt_of(length), 9, id == 2 ? 3 : 1);
          pair.send(spec);
          pair.run();
          for (const auto& choice : spec.choices) {
            EXPECT_EQ(pair.stream(spec, choice.index), truth(pair.p.model, spec, choice.index))
                << length << " " << chunk;
          }
          EXPECT_EQ(pair.p.ends[spec.request], 1);
          EXPECT_EQ(pair.d.ends[spec.request], 1);
        }
        pair.expect_clean();
      }
    }
  }
}

TEST(SchedulerTransfer, ManyAtOnceInASmallPoolAllEnd) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config);
  std::vector<protocol::GenerateSpec> specs;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    specs.push_back(request_of(id, prompt_of(17 + id, static_cast<TokenId>(id)), 12));
    pair.send(specs.back());
  }
  pair.run();
  for (const auto& spec : specs) {
    if (pair.p.errors.contains(spec.request)) {
      EXPECT_EQ(pair.p.errors[spec.request].code, ErrorCode::resource_exhausted);
      pair.d.scheduler->abort({spec.request, {}, 0, "refused by the prefill worker"});
      continue;
    }
    EXPECT_EQ(pair.stream(spec, 0), truth(pair.p.model, spec, 0));
  }
  pair.pump();
  pair.run();
  pair.expect_clean();
}

TEST(SchedulerTransfer, ALostTransferEndsBothSidesAndKeepsTheCommittedChunk) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config, Fault::lose_second_chunk);
  const auto spec = request_of(1, prompt_of(20), 5);
  pair.send(spec);
  pair.run();
  EXPECT_EQ(pair.d.errors[spec.request].code, ErrorCode::unavailable);
  EXPECT_EQ(pair.d.ends[spec.request], 1);
  EXPECT_EQ(pair.p.ends[spec.request], 1);
  EXPECT_EQ(pair.d.scheduler->cache().cached(), 2u);
  pair.expect_clean();
}

TEST(SchedulerTransfer, ACorruptBlockWouldShow) {
  Pair pair({}, Fault::corrupt);
  const auto spec = request_of(1, prompt_of(20), 5);
  pair.send(spec);
  pair.run();
  EXPECT_NE(pair.stream(spec, 0), truth(pair.p.model, spec, 0)) << "the checker must see what it is there to see";
}

TEST(SchedulerTransfer, AbortAtAnyStepFreesBothSides) {
  for (int at = 0; at < 12; ++at) {
    SchedulerConfig config;
    config.prefill_chunk_tokens_max = 8;
    Pair pair(config);
    const auto spec = request_of(1, prompt_of(30), 6, 2);
    pair.send(spec);
    pair.run(at);
    pair.p.scheduler->abort({spec.request, {}, 0, "gone"});
    pair.d.scheduler->abort({spec.request, {}, 0, "gone"});
    pair.p.collect();
    pair.d.collect();
    pair.pump();
    pair.run();
    EXPECT_EQ(pair.p.ends[spec.request], 1) << at;
    EXPECT_EQ(pair.d.ends[spec.request], 1) << at;
    pair.expect_clean();
  }
}

TEST(SchedulerTransfer, PreemptionOfAReceivedRequestAtAnyStepChangesNothing) {
  for (int at = 0; at < 14; ++at) {
    SchedulerConfig config;
    config.prefill_chunk_tokens_max = 8;
    config.prefix_cache = at % 2 == 0;
    Pair pair(config);
    const auto a = request_of(1, prompt_of(22), 8, 2), b = request_of(2, prompt_of(13, 5), 8);
    pair.send(a);
    pair.send(b);
    pair.run(at);
    pair.d.scheduler->preempt_all();
    pair.p.scheduler->preempt_all();  // a prefill stays
    pair.run();
    for (const auto& spec : {a, b}) {
      for (const auto& choice : spec.choices) {
        EXPECT_EQ(pair.stream(spec, choice.index), truth(pair.p.model, spec, choice.index)) << at;
      }
      EXPECT_EQ(pair.d.ends[spec.request], 1);
    }
    pair.expect_clean();
  }
}

TEST(SchedulerTransfer, ReceivedRequestsThatOutgrowThePoolAllEndRight) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config, Fault::none, 16);
  std::vector<protocol::GenerateSpec> specs;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    specs.push_back(request_of(id, prompt_of(12, static_cast<TokenId>(id)), 30));
    pair.send(specs.back());
  }
  pair.run();
  EXPECT_GT(pair.d.preempted, 0u) << "the test needs a pool that is too small";
  for (const auto& spec : specs) EXPECT_EQ(pair.stream(spec, 0), truth(pair.p.model, spec, 0));
  pair.expect_clean();
}

TEST(SchedulerTransfer, ReofferAtAnyStepGivesTheNewPeerAll) {
  for (int at = 0; at < 8; ++at) {
    for (std::uint32_t taken = 0; taken < 3; ++taken) {  // chunks that the old peer had
      SchedulerConfig config;
      config.prefill_chunk_tokens_max = 8;
      Pair pair(config);
      const auto spec = request_of(1, prompt_of(30), 6, 2);
      const protocol::TransferRoute before = Pair::route_of(spec), after = Pair::route_of(spec, 1);
      pair.peer_is_gone = true;
      for (const auto& choice : spec.choices) pair.d.first_position[{spec.request, choice.index}] = 1;
      pair.p.scheduler->prefill({spec, before}, pair.p.now);
      pair.p.collect();
      for (int i = 0; i < at; ++i) {
        pair.p.step();
        pair.pump();
      }
      const TransferKey old{before.transfer, before.attempt};
      for (std::uint32_t chunk = 0; chunk < taken; ++chunk) {
        pair.p.scheduler->on_transfer(ChunkReleased{old, chunk, TransferEnd::committed}, pair.p.now);
      }
      pair.d.scheduler->expect({spec, after}, pair.d.now);
      pair.p.scheduler->reoffer({spec.request, after});
      pair.p.scheduler->reoffer({spec.request, after});  // a repeated frame changes nothing
      pair.p.collect();
      // What the old peer still says comes too late.
      pair.p.scheduler->on_transfer(ChunkReleased{old, 0, TransferEnd::expired}, pair.p.now);
      pair.p.scheduler->on_transfer(SendEnded{old, TransferEnd::expired, "late", 0}, pair.p.now);
      pair.pump();
      pair.run();
      for (const auto& choice : spec.choices) {
        EXPECT_EQ(pair.stream(spec, choice.index), truth(pair.p.model, spec, choice.index)) << at;
      }
      EXPECT_EQ(pair.p.ends[spec.request], 1) << at;
      EXPECT_EQ(pair.d.ends[spec.request], 1) << at;
      EXPECT_TRUE(std::ranges::none_of(pair.p.statuses, [](const auto& s) { return s.outcome == "failed"; })) << at;
      pair.expect_clean();
    }
  }
}

TEST(SchedulerTransfer, ReofferOfWhatIsNotHeldSaysSo) {
  Pair pair({});
  const auto spec = request_of(1, prompt_of(20), 5);
  pair.p.scheduler->reoffer({spec.request, Pair::route_of(spec, 1)});
  pair.p.collect();
  ASSERT_EQ(pair.p.statuses.size(), 1u);
  EXPECT_EQ(pair.p.statuses[0].outcome, "failed");
  pair.send(spec);
  pair.run();
  pair.p.scheduler->reoffer({spec.request, Pair::route_of(spec, 1)});
  pair.p.collect();
  EXPECT_EQ(pair.p.statuses.back().outcome, "failed");
  pair.expect_clean();
}

// A newer dispatch of the same transfer runs already when the older one is reoffered under its attempt.
TEST(SchedulerTransfer, ReofferUnderAnAttemptThatRunsLeavesBothWhole) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config);
  pair.peer_is_gone = true;
  auto spec = request_of(1, prompt_of(20), 5);
  pair.p.scheduler->prefill({spec, Pair::route_of(spec)}, pair.p.now);
  for (int i = 0; i < 6; ++i) pair.p.step();  // the request has gone, its KV is offered
  pair.p.streams.clear();
  spec.attempt = 1;
  pair.p.scheduler->prefill({spec, Pair::route_of(spec, 1)}, pair.p.now);
  pair.p.scheduler->reoffer({spec.request, Pair::route_of(spec, 1)});
  for (int i = 0; i < 6; ++i) pair.p.step();
  for (std::uint32_t attempt = 0; attempt < 2; ++attempt) {
    pair.p.scheduler->on_transfer(SendEnded{{{9, 1}, attempt}, TransferEnd::expired, "", 0}, pair.p.now);
  }
  pair.run();
  pair.expect_clean();
}

TEST(SchedulerTransfer, ReleaseAtAnyStepFreesTheSender) {
  for (int at = 0; at < 8; ++at) {
    SchedulerConfig config;
    config.prefill_chunk_tokens_max = 8;
    Pair pair(config);
    pair.peer_is_gone = true;
    const auto spec = request_of(1, prompt_of(30), 6);
    pair.p.scheduler->prefill({spec, Pair::route_of(spec)}, pair.p.now);
    for (int i = 0; i < at; ++i) pair.p.step();
    pair.p.scheduler->release({spec.request, {9, 1}, 7});  // another attempt: not meant
    pair.p.collect();
    EXPECT_EQ(pair.p.ends[spec.request], 0);
    pair.p.scheduler->release({spec.request, {9, 1}, 0});
    pair.p.collect();
    const std::size_t cancels = std::ranges::count_if(
        pair.p.actions, [](const auto& action) { return std::holds_alternative<CancelTransfer>(action); });
    EXPECT_EQ(cancels, 1u) << at;
    EXPECT_EQ(pair.p.ends[spec.request], 0) << "the peer may still read";
    pair.p.scheduler->release({spec.request, {9, 1}, 0});
    pair.pump();
    pair.run();
    EXPECT_EQ(pair.p.ends[spec.request], 1) << at;
    pair.expect_clean();
  }
}

TEST(SchedulerTransfer, TooMuchKvThatWaitsIsRefusedUntilSomeHasGone) {
  SchedulerConfig config;
  config.pinned_share_max = 0.25f;  // 16 of 64 blocks
  Pair pair(config);
  pair.peer_is_gone = true;
  const auto first = request_of(1, prompt_of(40), 4), second = request_of(2, prompt_of(40, 3), 4);
  pair.p.scheduler->prefill({first, Pair::route_of(first)}, pair.p.now);
  for (int i = 0; i < 4; ++i) pair.p.step();
  pair.p.scheduler->prefill({second, Pair::route_of(second)}, pair.p.now);
  pair.p.collect();
  EXPECT_EQ(pair.p.errors[second.request].code, ErrorCode::resource_exhausted);
  EXPECT_GT(pair.p.retry_after[second.request], Duration::zero());
  EXPECT_EQ(pair.p.ends[second.request], 1);
  EXPECT_EQ(pair.p.ends[first.request], 0);
  pair.p.scheduler->on_transfer(SendEnded{{{9, 1}, 0}, TransferEnd::expired, "", 0}, pair.p.now);
  pair.p.collect();
  pair.p.errors.clear();
  pair.p.scheduler->prefill({second, Pair::route_of(second)}, pair.p.now);
  pair.p.step();
  EXPECT_TRUE(pair.p.errors.empty());
  pair.p.scheduler->abort({second.request, {}, 0, "enough"});
  pair.p.collect();
  pair.pump();
  pair.run();
  pair.expect_clean();
}

// Blocks that a read may still write stay held until the service says that it has ended.
TEST(SchedulerTransfer, DeadlineOfAReceiverHoldsItsBlocksUntilTheTransferEnds) {
  Pair pair({});
  auto spec = request_of(1, prompt_of(20), 5);
  spec.deadline = std::chrono::milliseconds(3);
  pair.d.scheduler->expect({spec, Pair::route_of(spec)}, pair.d.now);
  const TransferKey key{{9, 1}, 0};
  const auto hashes = pair.d.hasher.hash_blocks({1, 42}, spec.prompt);
  pair.d.scheduler->on_transfer(ReserveBlocks{key, 0, 0, 20, hashes}, pair.d.now);
  for (int i = 0; i < 6; ++i) pair.d.step();
  EXPECT_EQ(pair.d.errors[spec.request].code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(pair.d.ends[spec.request], 1);
  EXPECT_EQ(pair.d.scheduler->cache().available(), pair.d.config.blocks - 5);
  pair.pump();  // the service hears of the cancel
  pair.expect_clean();
  EXPECT_EQ(pair.d.ends[spec.request], 1);
}

TEST(SchedulerTransfer, DeadlineOfASenderEndsAfterItsTransfer) {
  for (int at = 1; at < 6; ++at) {
    SchedulerConfig config;
    config.prefill_chunk_tokens_max = 8;
    Pair pair(config);
    pair.peer_is_gone = true;
    auto spec = request_of(1, prompt_of(30), 5);
    spec.deadline = std::chrono::milliseconds(at);
    pair.p.scheduler->prefill({spec, Pair::route_of(spec)}, pair.p.now);
    for (int i = 0; i < 8; ++i) pair.p.step();
    pair.pump();
    // One that was computed in time waits for its reader; the lease bounds that.
    pair.p.scheduler->on_transfer(SendEnded{{{9, 1}, 0}, TransferEnd::expired, "", 0}, pair.p.now);
    pair.run();
    EXPECT_EQ(pair.p.errors.contains(spec.request), at < 4) << at;
    EXPECT_EQ(pair.p.ends[spec.request], 1) << at;
    pair.expect_clean();
  }
}

TEST(SchedulerTransfer, DrainWaitsForTransfersOfBothSides) {
  SchedulerConfig config;
  config.prefill_chunk_tokens_max = 8;
  Pair pair(config);
  const auto spec = request_of(1, prompt_of(30), 5), late = request_of(2, prompt_of(5), 5);
  pair.send(spec);
  pair.p.scheduler->drain();
  pair.d.scheduler->drain();
  pair.send(late);
  EXPECT_EQ(pair.p.errors[late.request].code, ErrorCode::unavailable);
  EXPECT_EQ(pair.d.errors[late.request].code, ErrorCode::unavailable);
  EXPECT_FALSE(pair.p.scheduler->is_drained());
  EXPECT_FALSE(pair.d.scheduler->is_drained());
  pair.run();
  EXPECT_TRUE(pair.p.scheduler->is_drained());
  EXPECT_TRUE(pair.d.scheduler->is_drained());
  EXPECT_EQ(pair.stream(spec, 0), truth(pair.p.model, spec, 0));
  pair.expect_clean();
}

// A router that announces requests whose KV never comes must not fill the worker.
TEST(SchedulerTransfer, RequestsThatWaitForKvCountAsWaiting) {
  SchedulerConfig config;
  config.waiting_max = 3;
  Pair pair(config);
  for (std::uint64_t id = 1; id <= 5; ++id) {
    const auto spec = request_of(id, prompt_of(9), 4);
    pair.d.scheduler->expect({spec, Pair::route_of(spec)}, pair.d.now);
  }
  pair.d.collect();
  EXPECT_EQ(pair.d.errors.size(), 2u);
  for (const auto& [request, error] : pair.d.errors) EXPECT_EQ(error.code, ErrorCode::resource_exhausted);
  for (std::uint64_t id = 1; id <= 5; ++id) pair.d.scheduler->abort({{1, id}, {}, 0, "gone"});
  pair.d.collect();
  pair.pump();
  pair.expect_clean();
}

// Everything at once, in pools that are too small.
TEST(SchedulerTransfer, FuzzKeepsEveryPromise) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    SchedulerConfig config;
    config.prefix_cache = random.below(3) > 0;
    config.prefill_chunk_tokens_max = 1 + static_cast<std::uint32_t>(random.below(16));
    config.sequences_max = 2 + static_cast<std::uint32_t>(random.below(6));
    Pair pair(config, Fault::none, 18);
    std::vector<protocol::GenerateSpec> specs;
    std::set<RequestId> touched;
    for (int step = 0; step < 200; ++step) {
      if (random.below(4) == 0) {
        auto spec = request_of(specs.size() + 1, prompt_of(1 + random.below(30), static_cast<TokenId>(random.below(3))),
                               1 + static_cast<std::uint32_t>(random.below(16)),
                               random.below(4) == 0 ? 1 + static_cast<std::uint32_t>(random.below(3)) : 1);
        if (random.below(8) == 0) {
          spec.deadline = std::chrono::milliseconds(1 + random.below(20));
          touched.insert(spec.request);
        }
        pair.send(spec);
        specs.push_back(std::move(spec));
      }
      if (!specs.empty() && random.below(8) == 0) {
        const RequestId victim = specs[random.below(specs.size())].request;
        touched.insert(victim);
        if (random.below(3) > 0) pair.d.scheduler->abort({victim, {}, 0, "gone"});
        if (random.below(3) > 0) pair.p.scheduler->release({victim, {9, victim.low}, 0});
        if (random.below(3) > 0) pair.p.scheduler->abort({victim, {}, 0, "gone"});
        pair.p.collect();
        pair.d.collect();
      }
      if (random.below(20) == 0) pair.d.scheduler->preempt_all();
      pair.run(1);
    }
    // What one side refused or gave up, a router ends on the other.
    for (const auto& spec : specs) {
      if (!touched.contains(spec.request) && !pair.p.errors.contains(spec.request)) continue;
      pair.d.scheduler->abort({spec.request, {}, 0, "ended elsewhere"});
      pair.d.collect();
    }
    pair.pump();
    pair.run(20000);
    for (const auto& spec : specs) {
      EXPECT_EQ(pair.p.ends[spec.request], 1) << "request " << spec.request.low;
      EXPECT_EQ(pair.d.ends[spec.request], 1) << "request " << spec.request.low;
      if (touched.contains(spec.request) || pair.p.errors.contains(spec.request)) continue;
      for (const auto& choice : spec.choices) {
        EXPECT_EQ(pair.stream(spec, choice.index), truth(pair.p.model, spec, choice.index));
      }
    }
    pair.expect_clean();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace penstock::worker
