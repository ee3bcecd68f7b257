// One routing decision: hash the prompt's blocks, match them in the index, score all workers. Prints percentiles and
// the ratio to the limit of 50 us (p99, 4,096 tokens, 100 workers), for prompts seen before (their hashes come from the
// cache, as in the router) and for new ones (the whole chain). Times are the thread's own CPU time, since a shared
// machine would show mostly the waits for its other programs. What is left of them shows in the last line: work that is
// the same each time and needs no memory but the nearest cache. Usage: penstock_decision_bench [workers] [tokens]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/text/block_hash.hpp"
#include "common/text/block_hash_cache.hpp"
#include "common/time/random.hpp"
#include "router/core/fleet.hpp"

namespace penstock::router {
namespace {

using Samples = std::vector<double>;

double cpu_micros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double percentile(Samples values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

std::uint64_t fixed_work() {
  Random random(1);
  std::uint64_t sum = 0;
  for (int i = 0; i < 10'000; ++i) sum += random.next();
  return sum;
}

void print(const char* what, const Samples& hash, const Samples& whole) {
  const double p99 = percentile(whole, 0.99);
  std::printf("%s: hash p50 %.1f p99 %.1f us; whole p50 %.1f p99 %.1f us, %.2fx of the limit of 50 us\n", what,
              percentile(hash, 0.5), percentile(hash, 0.99), percentile(whole, 0.5), p99, p99 / 50);
}

void measure(std::size_t workers, std::size_t tokens) {
  const TimePoint now = SteadyClock().now();
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
  text::BlockHashCache hashes(hasher.block_tokens(), std::size_t{256} << 20);  // holds all prompts
  for (const auto& prompt : prompts) (void)hashes.hash_blocks(hasher, prompt);
  Samples hash_seen, hash_new, choose, whole_seen, whole_new, fixed;
  for (int round = 0; round < 10000; ++round) {
    const auto& prompt = prompts[random.below(prompts.size())];
    const double start = cpu_micros();
    const auto blocks = hashes.hash_blocks(hasher, prompt);
    const double hashed = cpu_micros();
    PlacementRequest request;
    request.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    request.blocks = blocks;
    request.output_tokens_max = 256;
    const Placement placement = fleet.choose(request, now);
    const double end = cpu_micros();
    const bool is_same = hasher.hash_blocks(prompt) == blocks;
    const double hashed_anew = cpu_micros();
    if (placement.outcome != Outcome::placed || !is_same) std::abort();
    hash_seen.push_back(hashed - start);
    hash_new.push_back(hashed_anew - end);
    choose.push_back(end - hashed);
    const double fixed_start = cpu_micros();
    if (fixed_work() == 0) std::abort();
    fixed.push_back(cpu_micros() - fixed_start);
    whole_seen.push_back(end - start);
    whole_new.push_back(hashed_anew - hashed);
  }
  std::printf("decision, %zu tokens, %zu workers: match + score p50 %.1f p99 %.1f us\n", tokens, workers,
              percentile(choose, 0.5), percentile(choose, 0.99));
  print("seen before", hash_seen, whole_seen);
  print("new        ", hash_new, whole_new);
  std::printf("the machine: fixed work p50 %.1f p99 %.1f us\n", percentile(fixed, 0.5), percentile(fixed, 0.99));
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
