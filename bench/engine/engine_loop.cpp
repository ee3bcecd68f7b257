// What the engine needs for a step beside its executor, which is what a GPU waits for between two steps:
//   bench_engine_loop [--sequences N]... [--steps N]
// The real engine decodes streams on an executor that answers at once. CPU time of the engine's thread a step; the
// executor's few instructions are in it. --sequences with one number is for callgrind.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "bench/engine/quiet_sink.hpp"
#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"

namespace penstock::bench {
namespace {

using namespace worker;

constexpr std::uint32_t prompt_tokens = 64, block_tokens = 16, vocabulary = 128256;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class CountingSink final : public QuietSink {
 public:
  void on_step(protocol::Step step) override { tokens += step.choices.size(); }
  std::uint64_t tokens = 0;
};

/// Draws a token at once, another one at every step.
class InstantExecutor final : public Executor {
 public:
  InstantExecutor(std::uint32_t sequences, std::uint32_t tokens)
      : limits_{sequences * prompt_tokens, sequences, tokens + block_tokens, vocabulary},
        blocks_((tokens / block_tokens + 2) * sequences) {}
  const ExecutorLimits& limits() const override { return limits_; }
  KvPoolView kv_pool() override { return {nullptr, blocks_, {1, 1, block_tokens, 64, KvDtype::bf16}, -1}; }
  void launch(const StepBatch& batch) override {
    result_.sequences.assign(batch.sequences.size(), {});
    for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
      if (batch.sequences[i].sample) result_.sequences[i].token = (drawn_ += 7919) % vocabulary;
    }
  }
  Result<StepResult> collect() override { return std::move(result_); }

 private:
  ExecutorLimits limits_;
  std::uint32_t blocks_;
  TokenId drawn_ = 0;
  StepResult result_;
};

protocol::Generate request_of(std::uint64_t id, std::uint32_t tokens) {
  protocol::Generate generate;
  generate.spec.request = {1, id};
  for (std::uint64_t i = 0; i < prompt_tokens; ++i) {
    generate.spec.prompt.push_back(static_cast<TokenId>((1000 + 7919 * i + 104729 * id) % vocabulary));
  }
  generate.spec.choices.push_back({0, {}});
  generate.spec.sampling.tokens_max = tokens;
  generate.spec.sampling.ignore_eos = true;
  generate.spec.deadline = std::chrono::hours(1);
  return generate;
}

void measure(std::uint32_t sequences, std::uint32_t steps) {
  const std::uint32_t tokens = steps + prompt_tokens;
  CountingSink sink;
  SteadyClock clock;
  InstantExecutor executor(sequences, prompt_tokens + tokens);
  EngineConfig config;
  config.sequences_max = sequences;
  config.step_tokens_max = config.prefill_chunk_tokens_max = sequences * prompt_tokens;
  const BlakePrefixHasher hasher(config, block_tokens);
  EngineCore core(config, executor, nullptr, sink, clock, nullptr, hasher, 1);
  for (std::uint32_t i = 0; i < sequences; ++i) core.handle(request_of(i, tokens));
  for (std::uint32_t i = 0; i < 16; ++i) (void)core.step().value();
  const std::uint64_t before = sink.tokens;
  const double start = thread_seconds();
  for (std::uint32_t i = 0; i < steps; ++i) (void)core.step().value();
  const double taken = thread_seconds() - start;
  std::printf("{\"sequences\": %u, \"tokens_a_step\": %.1f, \"us_a_step\": %.1f}\n", sequences,
              static_cast<double>(sink.tokens - before) / steps, taken / steps * 1e6);
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  std::vector<std::uint32_t> sequences{1, 16, 64, 256};
  std::uint32_t steps = 2000;
  CLI::App app("The engine's own time for a step");
  app.add_option("--sequences", sequences, "that decode; one run for each")->check(CLI::Range(1, 4096));
  app.add_option("--steps", steps, "of each run")->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  for (const std::uint32_t count : sequences) penstock::bench::measure(count, steps);
  return 0;
}
