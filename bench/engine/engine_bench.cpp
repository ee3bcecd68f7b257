// Speed of the CPU executor on a real model, as shares of what the machine can do, both measured in this run:
//   bench_engine --model FILE [--threads N]... [--shape NAME]... [--repeat N] [--json] [--stdin]
// Decode: tokens a second over a context of 64 to 80 tokens, and the share of read bandwidth that reading each weight
// once a step takes. Prefill: tokens a second, and the share of the FMA peak that the matrix products alone take.
// --stdin: shapes come line by line, each answered by a line, so that a script can alternate between engines.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bench/engine/kernels/peak.hpp"
#include "bench/engine/shape_run.hpp"
#include "worker/executor/cpu/cpu_executor.hpp"

namespace penstock::bench {
namespace {

struct Options {
  std::string model;
  std::vector<std::uint32_t> threads{1, 2};
  std::vector<std::string> shapes{"decode-1", "decode-8", "decode-32", "prefill-512", "prefill-2048"};
  std::uint32_t repeat = 1;
  bool json = false;
  bool from_stdin = false;
};

constexpr std::uint32_t decode_sequences_max = 64;
constexpr std::uint32_t prompt_tokens_max = 4096;

/// Multiply-adds of one token's matrix products in the layers.
double layer_macs(const worker::ModelSpec& spec) {
  const double ffn = spec.experts ? double{1} * spec.experts->per_token * spec.experts->ffn : spec.ffn;
  const double q = double{1} * spec.heads * spec.head_dim;
  const double kv = double{1} * spec.kv_heads * spec.head_dim;
  return spec.layers * (spec.hidden * (q + 2 * kv) + q * spec.hidden + 3.0 * spec.hidden * ffn);
}

/// Bytes of weights that a decode step reads: all of them, and of an untied embedding only a few rows.
double step_bytes(const worker::LoadedModel& model) {
  const std::size_t unread = model.spec.tied_embeddings ? 0 : model.weights.embedding.packed_bytes();
  return static_cast<double>(model.weights.bytes - unread);
}

class Bench {
 public:
  Bench(std::shared_ptr<const worker::LoadedModel> model, std::uint32_t threads, const Options& options)
      : model_(std::move(model)), options_(options), threads_(threads), pool_({.threads = threads}) {
    worker::CpuExecutorOptions settings;
    settings.step_tokens_max = 512;
    settings.sequences_max = decode_sequences_max;
    settings.sequence_tokens_max = std::min(model_->spec.context_tokens, prompt_tokens_max + 1);
    settings.threads = threads;
    const Shape largest{ShapeKind::decode, decode_sequences_max};
    settings.kv_blocks = (tokens_of(largest) / settings.block_tokens + 1) * decode_sequences_max;
    executor_ = worker::make_cpu_executor(model_, settings).value();
  }

  /// False after telling what is wrong.
  bool run(const std::string& name) {
    const auto shape = parse_shape(name);
    if (!shape || sequences_of(*shape) > decode_sequences_max ||
        tokens_of(*shape) > executor_->limits().sequence_tokens_max) {
      std::fprintf(stderr, "bench_engine: shape %s is unknown or too large\n", name.c_str());
      return false;
    }
    // Close to the runs: on a shared machine the limits move as well.
    bandwidth_ = read_bandwidth(pool_);
    flops_ = fma_peak(pool_);
    std::vector<double> times;
    for (std::uint32_t i = 0; i < options_.repeat; ++i) {
      const auto seconds = run_shape(*executor_, *shape);
      if (!seconds) {
        std::fprintf(stderr, "bench_engine: %s\n", seconds.error().message.c_str());
        return false;
      }
      times.push_back(*seconds);
    }
    std::sort(times.begin(), times.end());
    print(*shape, times[times.size() / 2]);
    return true;
  }

 private:
  void print(const Shape& shape, double seconds) const {
    const bool is_decode = shape.kind == ShapeKind::decode;
    const double rate = shape.size / seconds;
    const double read = is_decode ? step_bytes(*model_) / seconds / bandwidth_ : 0;
    const double fma = 2 * layer_macs(model_->spec) * rate / flops_;
    if (options_.json) {
      std::printf(
          "{\"engine\":\"penstock\",\"shape\":\"%s\",\"threads\":%u,\"tokens_per_second\":%.2f,"
          "\"read_share\":%.4f,\"fma_share\":%.4f,\"read_gb_per_second\":%.2f,\"fma_gflops\":%.2f}\n",
          shape.name().c_str(), threads_, rate, read, fma, bandwidth_ * 1e-9, flops_ * 1e-9);
    } else if (is_decode) {
      std::printf("%-13s %9.1f tokens/s  weights at %5.1f %% of %5.1f GB/s\n", shape.name().c_str(), rate, 100 * read,
                  bandwidth_ * 1e-9);
    } else {
      std::printf("%-13s %9.1f tokens/s  products at %5.1f %% of %5.1f GFLOP/s\n", shape.name().c_str(), rate,
                  100 * fma, flops_ * 1e-9);
    }
    std::fflush(stdout);
  }

  std::shared_ptr<const worker::LoadedModel> model_;
  const Options& options_;
  std::uint32_t threads_;
  std::unique_ptr<worker::Executor> executor_;
  kernels::cpu::ThreadPool pool_;  // measures the limits
  double bandwidth_ = 0, flops_ = 0;
};

int run(const Options& options) {
  auto loaded = worker::load_model(options.model, {});
  if (!loaded) {
    std::fprintf(stderr, "bench_engine: %s\n", loaded.error().message.c_str());
    return 1;
  }
  const auto model = std::make_shared<const worker::LoadedModel>(std::move(*loaded));
  bool fine = true;
  for (const std::uint32_t threads : options.threads) {
    if (!options.json) std::printf("%u threads, %.1f MB of weights\n", threads, step_bytes(*model) * 1e-6);
    Bench bench(model, threads, options);
    if (options.from_stdin) {
      for (std::string name; fine && std::getline(std::cin, name);) fine = bench.run(name);
    } else {
      for (const std::string& name : options.shapes) fine = fine && bench.run(name);
    }
  }
  return fine ? 0 : 1;
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  penstock::bench::Options options;
  CLI::App app("The CPU executor's speed as shares of the machine's");
  app.add_option("--model", options.model, "GGUF file or Hugging Face folder")->required();
  app.add_option("--threads", options.threads, "one run for each")->check(CLI::Range(1, 1024));
  app.add_option("--shape", options.shapes, "decode-BATCH or prefill-TOKENS");
  app.add_option("--repeat", options.repeat, "the median of so many runs")->check(CLI::Range(1, 100));
  app.add_flag("--json", options.json, "a JSON object a line");
  app.add_flag("--stdin", options.from_stdin, "shapes line by line from the standard input");
  CLI11_PARSE(app, argc, argv);
  return penstock::bench::run(options);
}
