// The prefix index alone, one thread (it is owned by one): block operations a second, all applied (nothing queues), and
// lookup time. The limit of 30 M operations a second is for 8 threads, so a thread's share is 3.75 M; p99 of a lookup
// of 24 blocks (the mean of the public Mooncake trace at 512 tokens a block) is to stay below 5 us.
// Usage: penstock_index_bench [workers] [blocks in millions]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/time/random.hpp"
#include "router/core/index/prefix_index.hpp"

namespace penstock::router {
namespace {

constexpr std::size_t chain_blocks = 64;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::vector<BlockHash> chain(std::uint64_t family) {
  Random random(family);
  std::vector<BlockHash> out;
  for (std::size_t i = 0; i < chain_blocks; ++i) out.push_back({random.next(), random.next()});
  return out;
}

void lookups(PrefixIndex& index, const std::vector<std::vector<BlockHash>>& chains, std::size_t blocks) {
  SteadyClock clock;
  Random random(5);
  PrefixMatch match;
  std::vector<double> times;
  for (int i = 0; i < 20000; ++i) {
    const auto& whole = chains[random.below(chains.size())];
    const std::span<const BlockHash> asked(whole.data(), blocks);
    const TimePoint start = clock.now();
    index.match(asked, match);
    times.push_back(seconds(clock.now() - start) * 1e6);
  }
  std::sort(times.begin(), times.end());
  std::printf("lookup of %zu blocks: p50 %.2f us, p99 %.2f us: %.2fx of the limit of 5 us\n", blocks, times[10000],
              times[19800], times[19800] / 5);
}

void measure(std::uint32_t workers, std::size_t millions) {
  SteadyClock clock;
  Random random(3);
  PrefixIndex index({std::uint64_t{1} << 30, 1u << 18});
  for (std::uint32_t slot = 0; slot < workers; ++slot) index.add_worker(slot);
  std::vector<std::vector<BlockHash>> chains;
  for (std::size_t i = 0; i < millions * 1000000 / chain_blocks; ++i) chains.push_back(chain(i));
  std::uint64_t operations = 0;
  const TimePoint start = clock.now();
  for (const auto& blocks : chains) {  // every chain on two workers
    for (int copy = 0; copy < 2; ++copy) {
      index.store(static_cast<std::uint32_t>(random.below(workers)), 0, blocks);
      operations += blocks.size();
    }
  }
  const TimePoint filled = clock.now();
  const double fill = static_cast<double>(operations) / seconds(filled - start) / 1e6;
  // Steady state: tails go and come back, as in caches that are full.
  operations = 0;
  for (int i = 0; i < 60000; ++i) {
    const auto& blocks = chains[random.below(chains.size())];
    const std::span<const BlockHash> tail(blocks.data() + chain_blocks / 2, chain_blocks / 2);
    const auto slot = static_cast<std::uint32_t>(random.below(workers));
    index.remove(slot, tail);
    index.store(slot, chain_blocks / 2, tail);
    operations += 2 * tail.size();
  }
  const double churn = static_cast<double>(operations) / seconds(clock.now() - filled) / 1e6;
  std::printf("%u workers, %.1f M blocks, %.1f bytes a block\n", workers, static_cast<double>(index.blocks()) / 1e6,
              static_cast<double>(index.bytes()) / static_cast<double>(index.blocks()));
  std::printf("fill %.2f M block operations/s: %.2fx of 3.75 a thread; churn %.2f M/s: %.2fx\n", fill, fill / 3.75,
              churn, churn / 3.75);
  lookups(index, chains, 24);
  lookups(index, chains, chain_blocks);
  const TimePoint leaving = clock.now();
  index.remove_worker(0);
  const double forgotten = seconds(clock.now() - leaving) * 1e6;
  std::size_t steps = 1;
  while (index.sweep(1u << 16)) ++steps;
  std::printf("a worker leaves: %.1f us at once, swept out in %zu steps of %.2f ms\n", forgotten, steps,
              seconds(clock.now() - leaving) * 1e3 / static_cast<double>(steps));
}

}  // namespace
}  // namespace penstock::router

int main(int count, char** arguments) {
  const auto workers = static_cast<std::uint32_t>(count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 100);
  const std::size_t millions = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 1;
  if (workers == 0 || millions == 0) return std::puts("usage: penstock_index_bench [workers] [millions]"), 2;
  penstock::router::measure(workers, millions);
  return 0;
}
