// One routing decision: hash the prompt's blocks, match them in the index, score all workers. Prints percentiles and
// the ratio to the limit of 50 us (p99, 4,096 tokens, 100 workers). Usage: penstock_decision_bench [workers] [tokens]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/text/block_hash.hpp"
#include "common/time/random.hpp"
#include "router/core/fleet.hpp"

namespace penstock::router {
namespace {

double percentile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

void measure(std::size_t workers, std::size_t tokens) {
  SteadyClock clock;
  TimePoint now = clock.now();
  Fleet fleet({}, 1);
  Random random(7);
  const text::BlockHasher hasher(text::local_block_hash_key(), {"revision", "bf16", "", ""});
  std::vector<std::vector<TokenId>> prompts(2000);  // 64 groups share their first half
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Random group(i % 64), own(1000 + i);
    for (std::size_t t = 0; t < tokens; ++t) {
      prompts[i].push_back(static_cast<TokenId>((t < tokens / 2 ? group : own).below(49152)));
    }
  }
  std::vector<WorkerRef> refs;
  for (std::size_t i = 0; i < workers; ++i) {
    protocol::Welcome welcome;
    welcome.instance = {1, i + 1};
    welcome.epoch = 1;
    welcome.kv_blocks = 100000;
    welcome.sequences_max = 256;
    welcome.card.context_tokens = 131072;
    refs.push_back(fleet.on_welcome(welcome, "worker", {}, now).worker);
    fleet.on_snapshot(refs.back(), {1, 0, 0, true, {}}, now);
  }
  // Each prompt is cached on three workers, each group's first half on a third of all.
  std::vector<std::uint64_t> sequences(workers, 0);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto blocks = hasher.hash_blocks(prompts[i]);
    const std::vector<BlockHash> half(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2));
    const auto store = [&](std::size_t at, const std::vector<BlockHash>& what) {
      fleet.on_cache_events(refs[at], {1, ++sequences[at], {protocol::BlockStored{0, {}, what}}}, now);
    };
    for (int copy = 0; copy < 3; ++copy) store(random.below(workers), blocks);
    for (std::size_t at = i % 3; i < 64 && at < workers; at += 3) store(at, half);
  }
  for (std::size_t i = 0; i < workers; ++i) {
    protocol::Load load;
    load.waiting_prefill_tokens = random.below(2000);
    load.kv_blocks_total = 100000;
    load.kv_blocks_free = 50000;
    fleet.on_load(refs[i], load, now);
  }
  std::vector<double> hash, choose, whole;
  for (int round = 0; round < 10000; ++round) {
    const auto& prompt = prompts[random.below(prompts.size())];
    const TimePoint start = clock.now();
    const auto blocks = hasher.hash_blocks(prompt);
    const TimePoint hashed = clock.now();
    PlacementRequest request;
    request.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    request.blocks = blocks;
    request.output_tokens_max = 256;
    const Placement placement = fleet.choose(request, now);
    const TimePoint end = clock.now();
    if (placement.outcome != Outcome::placed) std::abort();
    const auto micros = [](Duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
    hash.push_back(micros(hashed - start));
    choose.push_back(micros(end - hashed));
    whole.push_back(micros(end - start));
  }
  const double p99 = percentile(whole, 0.99);
  std::printf("decision, %zu tokens, %zu workers: hash p50 %.1f us; match + score p50 %.1f p99 %.1f us\n", tokens,
              workers, percentile(hash, 0.5), percentile(choose, 0.5), percentile(choose, 0.99));
  std::printf("whole p50 %.1f us, p99 %.1f us: %.2fx of the limit of 50 us\n", percentile(whole, 0.5), p99, p99 / 50);
  std::printf("index %.1f MB for %llu blocks\n", static_cast<double>(fleet.stats().index_bytes) / 1e6,
              static_cast<unsigned long long>(fleet.stats().index_blocks));
}

}  // namespace
}  // namespace penstock::router

int main(int count, char** arguments) {
  const std::size_t workers = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 100;
  const std::size_t tokens = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 4096;
  if (workers == 0 || tokens < 32) return std::puts("usage: penstock_decision_bench [workers] [tokens]"), 2;
  penstock::router::measure(workers, tokens);
  return 0;
}
