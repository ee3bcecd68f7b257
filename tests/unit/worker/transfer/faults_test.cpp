// Many transfers under random faults. The world checks every committed byte; here: every transfer ends, nothing leaks.
#include "common/time/random.hpp"
#include "tests/unit/worker/transfer/world.hpp"

namespace penstock::worker::transfer::test {
namespace {

using std::chrono::milliseconds;

struct Totals {
  std::size_t complete = 0;
  std::size_t failed = 0;
};

/// Two prefill and two decode workers; some die at random moments.
Totals run_seed(std::uint64_t seed, FaultOptions faults, bool kills) {
  faults.seed = seed;
  World world(faults);
  Random random(seed);
  std::vector<Node*> prefill{&world.add(), &world.add()}, decode{&world.add(), &world.add()};
  std::map<TransferKey, std::pair<Node*, Node*>, KeyOrder> begun;
  for (std::uint64_t transfer = 1; transfer <= 12; ++transfer) {
    Node& p = *prefill[random.below(2)];
    Node& d = *decode[random.below(2)];
    if (!p.alive || !d.alive || p.free_blocks.size() < 16) {
      world.run(milliseconds(100));
      continue;
    }
    const TransferKey key = world.begin(transfer, 0, p, d);
    begun[key] = {&p, &d};
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      p.offer(key, chunk, 4, chunk == 1);
      world.run(milliseconds(5 * random.below(4)));
    }
    if (random.below(6) == 0) d.driver->machine().cancel(key, "test", world.clock.now());
    if (kills && random.below(8) == 0) world.kill(*(random.below(2) == 0 ? prefill : decode)[random.below(2)]);
    if (random.below(5) == 0) d.transport->hang();
    world.run(milliseconds(20));
    d.transport->resume();
    // Decoding ends at some time: the blocks go back.
    for (Node* node : decode) {
      for (const auto& [done, chunks] : std::exchange(node->committed, {})) {
        if (node->events<ReceiveComplete>().empty() && chunks.empty()) continue;
        for (const auto& [chunk, blocks] : chunks) node->free_blocks.insert(blocks.begin(), blocks.end());
      }
    }
  }
  world.run(std::chrono::seconds(9));
  Totals totals;
  for (const auto& [key, pair] : begun) {
    std::size_t ends = 0;
    for (const auto& event : pair.second->events<ReceiveComplete>()) ends += event.key == key;
    totals.complete += ends;
    for (const auto& event : pair.second->events<ReceiveFailed>()) {
      ends += event.key == key;
      totals.failed += event.key == key;
    }
    if (!pair.second->alive) continue;
    EXPECT_EQ(ends, 1u) << "seed " << seed << ", transfer " << key.transfer.low;
  }
  for (Node* node : prefill) {
    if (!node->alive) continue;
    EXPECT_TRUE(node->pins.empty()) << "seed " << seed;
    EXPECT_EQ(node->free_blocks.size(), pool_blocks) << "seed " << seed;
  }
  for (Node* node : decode) {
    if (!node->alive) continue;
    for (const auto& [key, chunks] : node->reserved) EXPECT_TRUE(chunks.empty()) << "seed " << seed;
  }
  return totals;
}

TEST(TransferFaults, WithoutFaultsMostComplete) {
  const Totals totals = run_seed(1, {}, false);
  EXPECT_GE(totals.complete, 6u);
}

TEST(TransferFaults, DroppedRepeatedDelayedAndCutMessages) {
  FaultOptions faults;
  faults.drop = faults.repeat = faults.delay = faults.cut = 0.08;
  std::size_t complete = 0;
  for (std::uint64_t seed = 1; seed <= 64; ++seed) complete += run_seed(seed, faults, false).complete;
  EXPECT_GT(complete, 160u);
}

TEST(TransferFaults, LateAndFailedReadsAndDeaths) {
  FaultOptions faults;
  faults.delay = 0.1;
  faults.read_late = 0.3;
  faults.read_fail = 0.05;
  std::size_t complete = 0;
  for (std::uint64_t seed = 1; seed <= 64; ++seed) complete += run_seed(seed, faults, true).complete;
  EXPECT_GT(complete, 64u);
}

}  // namespace
}  // namespace penstock::worker::transfer::test
