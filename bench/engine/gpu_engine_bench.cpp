// gpu_engine_bench: decode steps through the CUDA executor as the engine makes them, with random weights in a true
// shape: inputs from host memory, tokens back in host memory, sampling inside. A step is timed from launch() to the end
// of collect(); nothing else runs between two steps. In some more steps collect() is called when the GPU has ended long
// ago, so that it takes what the processor needs. Prints a row of JSON for each batch size and context. --loop: the
// real engine makes the steps instead, one at a time and with the next one started ahead.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/loop_run.hpp"
#include "common/time/clock.hpp"
#include "worker/executor/cuda/cuda_executor.hpp"
#include "worker/executor/cuda/device_weights.hpp"

namespace penstock::bench {
namespace {

using namespace worker;

constexpr std::uint32_t warm_steps = 8, host_steps = 17, prompt_steps = 9, block_tokens = 16;

struct Options {
  std::string shape = "llama-3.1-8b";
  std::vector<std::uint32_t> batches{1, 2, 4, 8, 16};
  std::vector<std::uint32_t> contexts{192, 1024};
  std::vector<std::uint32_t> prompts;
  std::uint32_t steps = 64;
  std::string launch = "graph";
  std::string weights = "bf16";
  float temperature = 0;
  std::uint32_t tensor_parallel = 1;
  bool loop = false;
};

ModelSpec spec_of(const std::string& shape) {
  ModelSpec spec;
  spec.name = shape;
  spec.context_tokens = 8192;
  spec.head_dim = spec.rope.rotary_dim = 128;
  spec.kv_heads = 8;
  spec.heads = 32;
  spec.hidden = 4096;
  if (shape == "llama-3.1-8b") {
    spec.architecture = "llama";
    spec.layers = 32;
    spec.ffn = 14336;
    spec.vocabulary = 128256;
  } else if (shape == "qwen3-8b") {
    spec.architecture = "qwen3";
    spec.layers = 36;
    spec.ffn = 12288;
    spec.vocabulary = 151936;
    spec.qk_norm = true;
  } else if (shape == "qwen3-30b-a3b") {
    spec.architecture = "qwen3moe";
    spec.layers = 48;
    spec.hidden = 2048;
    spec.kv_heads = 4;
    spec.experts = ExpertSpec{128, 8, 768, true};
    spec.vocabulary = 151936;
    spec.qk_norm = true;
  } else {
    throw std::runtime_error("the shape must be llama-3.1-8b, qwen3-8b or qwen3-30b-a3b");
  }
  return spec;
}

CudaLaunch launch_of(const std::string& name) {
  if (name == "graph") return CudaLaunch::graph;
  if (name == "direct") return CudaLaunch::direct;
  if (name == "ordered") return CudaLaunch::ordered;
  throw std::runtime_error("the launch must be graph, direct or ordered");
}

LayerFormat format_of(const std::string& name) {
  if (name == "bf16") return LayerFormat::bf16;
  if (name == "fp8") return LayerFormat::fp8_rows;
  if (name == "fp8-blocks") return LayerFormat::fp8_blocks;
  throw std::runtime_error("the weights must be bf16, fp8 or fp8-blocks");
}

/// Throws with the error's message: a benchmark that cannot measure ends.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<BlockIndex> blocks;
};

class DecodeRun {
 public:
  DecodeRun(Executor& executor, const Options& options, std::uint32_t batch, std::uint32_t context)
      : executor_(executor), position_(context), sequences_(batch) {
    params_.temperature = options.temperature;
    params_.top_p = options.temperature > 0 ? 0.95f : 1.0f;
    BlockIndex next = 0;
    const std::uint32_t blocks = (context + warm_steps + options.steps + host_steps + block_tokens) / block_tokens;
    for (std::uint32_t s = 0; s < batch; ++s) {
      sequences_[s].tokens = {7 + s};
      for (std::uint32_t i = 0; i < blocks; ++i) sequences_[s].blocks.push_back(next++);
    }
  }

  struct Times {
    double step, launch, collect;
  };
  /// Collects not before `delay` has passed.
  Times step(Duration delay = {}) {
    StepBatch batch;
    for (std::uint32_t s = 0; s < sequences_.size(); ++s) {
      SequenceStep part;
      part.row = s;
      part.position = position_;
      part.tokens = sequences_[s].tokens;
      part.blocks = sequences_[s].blocks;
      SampleInput& sample = part.sample.emplace();
      sample.params = &params_;
      sample.position = position_;
      batch.sequences.push_back(part);
    }
    const TimePoint start = clock_.now();
    executor_.launch(batch);
    const TimePoint launched = clock_.now();
    TimePoint collecting = launched;
    while (collecting < launched + delay) collecting = clock_.now();
    const StepResult result = must(executor_.collect());
    const TimePoint end = clock_.now();
    for (std::uint32_t s = 0; s < sequences_.size(); ++s) {
      if (!result.sequences[s].token) throw std::runtime_error("a step gave no token");
      sequences_[s].tokens.front() = *result.sequences[s].token;
    }
    ++position_;
    return {std::chrono::duration<double>(end - start).count(), std::chrono::duration<double>(launched - start).count(),
            std::chrono::duration<double>(end - collecting).count()};
  }

 private:
  Executor& executor_;
  protocol::SamplingParams params_;
  std::uint32_t position_;
  std::vector<Sequence> sequences_;
  SteadyClock clock_;
};

/// Seconds of a step that has a whole prompt, alone, and draws its first token.
double time_prompt(Executor& executor, std::uint32_t tokens) {
  static const protocol::SamplingParams greedy = [] {
    protocol::SamplingParams params;
    params.temperature = 0;
    return params;
  }();
  Sequence sequence;
  for (std::uint32_t t = 0; t < tokens; ++t) sequence.tokens.push_back(t * 7919 % 100'000);
  for (BlockIndex b = 0; b < (tokens + block_tokens - 1) / block_tokens; ++b) sequence.blocks.push_back(b);
  StepBatch batch;
  SequenceStep& part = batch.sequences.emplace_back();
  part.tokens = sequence.tokens;
  part.blocks = sequence.blocks;
  part.sample.emplace().params = &greedy;
  SteadyClock clock;
  const TimePoint start = clock.now();
  executor.launch(batch);
  if (!must(executor.collect()).sequences.at(0).token) throw std::runtime_error("a prompt gave no token");
  return std::chrono::duration<double>(clock.now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_loop(Executor& executor, const Options& options, std::uint32_t batch, std::uint32_t context) {
  for (const std::uint32_t in_flight : {1u, 2u}) {
    const LoopFigures loop = run_loop(executor, {batch, context, options.steps, in_flight, options.temperature});
    std::printf(
        "{\"shape\": \"%s\", \"weights\": \"%s\", \"temperature\": %g, \"batch\": %u, \"context\": %u, \"in_flight\": "
        "%u, \"tpot_ms\": %.4f, \"device_ms\": %.4f, \"gap_us\": %.1f, \"plan_us\": %.1f, \"apply_us\": %.1f, "
        "\"steps\": %u}\n",
        options.shape.c_str(), options.weights.c_str(), options.temperature, batch, context, in_flight, loop.step * 1e3,
        loop.device * 1e3, (loop.step - loop.device) * 1e6, loop.plan * 1e6, loop.apply * 1e6, loop.steps);
    std::fflush(stdout);
  }
}

void run(const Options& options) {
  auto model = std::make_shared<LoadedModel>();
  model->spec = spec_of(options.shape);
  CudaExecutorOptions settings;
  settings.sequences_max = *std::max_element(options.batches.begin(), options.batches.end());
  settings.launch = launch_of(options.launch);
  settings.tensor_parallel = options.tensor_parallel;
  const std::uint32_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  settings.kv_blocks =
      ((longest + warm_steps + options.steps + host_steps + settings.sequences_max * longest / 256) / block_tokens +
       4) *
      settings.sequences_max;
  for (const std::uint32_t tokens : options.prompts) {
    settings.step_tokens_max = std::max(settings.step_tokens_max, tokens);
    settings.kv_blocks = std::max(settings.kv_blocks, tokens / block_tokens + 1);
  }
  const WeightSource source = [format = format_of(options.weights)](const ModelSpec& spec, const TensorShare& share) {
    return random_weights(spec, share, format);
  };
  const auto executor = must(make_cuda_executor(model, source, settings));
  const std::string device = must(find_cuda_device()).name;
  for (const std::uint32_t tokens : options.prompts) {
    std::vector<double> times;
    for (std::uint32_t i = 0; i < prompt_steps; ++i) times.push_back(time_prompt(*executor, tokens));
    std::printf("{\"shape\": \"%s\", \"weights\": \"%s\", \"prompt\": %u, \"ttft_ms\": %.2f, \"gpu\": \"%s\"}\n",
                options.shape.c_str(), options.weights.c_str(), tokens, median(times) * 1e3, device.c_str());
    std::fflush(stdout);
  }
  for (const std::uint32_t context : options.contexts) {
    for (const std::uint32_t batch : options.batches) {
      if (options.loop) {
        print_loop(*executor, options, batch, context);
        continue;
      }
      DecodeRun decode(*executor, options, batch, context);
      for (std::uint32_t i = 0; i < warm_steps; ++i) decode.step();
      std::vector<double> steps, launches, collects;
      for (std::uint32_t i = 0; i < options.steps; ++i) {
        const auto times = decode.step();
        steps.push_back(times.step);
        launches.push_back(times.launch);
      }
      const auto ended = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(2 * median(steps)));
      for (std::uint32_t i = 0; i < host_steps; ++i) collects.push_back(decode.step(ended).collect);
      std::printf(
          "{\"shape\": \"%s\", \"weights\": \"%s\", \"launch\": \"%s\", \"tensor_parallel\": %u, \"temperature\": %g, "
          "\"batch\": %u, "
          "\"context\": %u, "
          "\"tpot_ms\": %.3f, \"launch_us\": %.1f, \"collect_us\": %.1f, \"gpu\": \"%s\"}\n",
          options.shape.c_str(), options.weights.c_str(), options.launch.c_str(), options.tensor_parallel,
          options.temperature, batch, context, median(steps) * 1e3, median(launches) * 1e6, median(collects) * 1e6,
          device.c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  CLI::App app("Decode steps through the CUDA executor, with random weights");
  penstock::bench::Options options;
  app.add_option("--shape", options.shape, "llama-3.1-8b, qwen3-8b or qwen3-30b-a3b");
  app.add_option("--batch", options.batches, "Sequences that decode together; repeatable.");
  app.add_option("--context", options.contexts, "Tokens before the first step; repeatable.");
  app.add_option("--prompt", options.prompts, "Tokens of a prompt in one step, before the decode steps; repeatable.");
  app.add_option("--steps", options.steps, "Timed steps, of which the median counts.");
  app.add_option("--launch", options.launch, "graph, direct or ordered");
  app.add_option("--weights", options.weights, "Of layers: bf16, fp8 (a scale a row) or fp8-blocks (128 x 128).");
  app.add_option("--tensor-parallel", options.tensor_parallel, "GPUs that share every layer: 1, 2, 4 or 8.");
  app.add_option("--temperature", options.temperature, "0: greedy; else with top-p 0.95.");
  app.add_flag("--loop", options.loop, "Through the engine's own thread; prompts are computed first.");
  CLI11_PARSE(app, argc, argv);
  try {
    penstock::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_engine_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
