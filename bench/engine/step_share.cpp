// What share of a step the engine needs beside the executor, which is all that planning one step ahead could hide:
//   bench_step_share --model FILE [--threads N]
// Requests of 64 prompt and 64 output tokens run through the real scheduler on the CPU executor, in batches of 1,
// 8, 32.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "bench/engine/quiet_sink.hpp"
#include "worker/engine/engine_core.hpp"
#include "worker/engine/prefix_hasher.hpp"
#include "worker/executor/cpu/cpu_executor.hpp"

namespace penstock::bench {
namespace {

using namespace worker;

class Sums final : public EngineProbe {
 public:
  void on_step(const StepMeasure& measure) override {
    if (measure.prefill_tokens > 0) return;
    execute += measure.execute;
    rest += measure.plan + measure.apply;
    ++steps;
  }
  Duration execute{}, rest{};
  std::uint32_t steps = 0;
};

protocol::Generate request_of(std::uint64_t id, std::uint32_t vocabulary) {
  protocol::Generate generate;
  generate.spec.request = {1, id};
  for (std::uint64_t i = 0; i < 64; ++i) {
    generate.spec.prompt.push_back(static_cast<TokenId>((1000 + 7919 * i + 104729 * id) % vocabulary));
  }
  generate.spec.choices.push_back({0, {}});
  generate.spec.sampling.temperature = 0;
  generate.spec.sampling.tokens_max = 64;
  generate.spec.sampling.ignore_eos = true;
  return generate;
}

void measure(Executor& executor, std::uint32_t batch) {
  QuietSink sink;
  Sums sums;
  SteadyClock clock;
  const EngineConfig config;
  const BlakePrefixHasher hasher(config, executor.kv_pool().geometry.block_tokens);
  EngineCore core(config, executor, nullptr, sink, clock, &sums, hasher, batch);
  for (std::uint32_t i = 0; i < batch; ++i) core.handle(request_of(i, executor.limits().vocabulary_size));
  while (core.step().value()) {
  }
  const auto micros = [&](Duration all) {
    return std::chrono::duration<double, std::micro>(all).count() / static_cast<double>(sums.steps);
  };
  std::printf("batch %-3u executor %9.1f us a step  engine %7.1f us  share %5.2f %%\n", batch, micros(sums.execute),
              micros(sums.rest), 100 * micros(sums.rest) / micros(sums.rest + sums.execute));
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  using namespace penstock;
  std::string path;
  worker::CpuExecutorOptions options;
  options.step_tokens_max = 512;
  options.sequences_max = 64;
  options.kv_blocks = 1024;
  options.threads = 2;
  CLI::App app("The engine's own share of a step");
  app.add_option("--model", path, "GGUF file or Hugging Face folder")->required();
  app.add_option("--threads", options.threads, "of the executor")->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  auto model = worker::load_model(path, {});
  if (!model) {
    std::fprintf(stderr, "bench_step_share: %s\n", model.error().message.c_str());
    return 1;
  }
  const auto shared = std::make_shared<const worker::LoadedModel>(std::move(*model));
  const auto executor = worker::make_cpu_executor(shared, options).value();
  for (const std::uint32_t batch : {1u, 8u, 32u}) bench::measure(*executor, batch);
  return 0;
}
