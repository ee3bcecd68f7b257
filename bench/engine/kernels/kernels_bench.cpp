// Speed of the CPU kernels as shares of what the machine can do, both measured in this run:
//   kernels_bench [--threads N] [--repeat N] [--isa portable|avx2|avx512|avx512_vnni] [--only matmul|step|context]
// matmul: a stack of matrices larger than the last-level cache, per format and number of rows m.
// step:   whole model steps of the default model's shape with random weights: decode and prefill.
// context: decode of one sequence over long contexts; what a token costs more than over 16 positions is K and V.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "bench/engine/kernels/model_step.hpp"
#include "bench/engine/kernels/peak.hpp"
#include "common/time/clock.hpp"
#include "common/time/random.hpp"

namespace penstock::bench {
namespace {

using namespace kernels::cpu;

struct Options {
  std::uint32_t threads = 2;
  int repeat = 7;
  IsaLevel isa = best_isa_level();
  std::string_view only;
};

struct Peaks {
  double bandwidth = 0;
  double flops = 0;
};

/// Median seconds of `repeat` calls after one warm-up.
template <class Call>
double median_seconds(int repeat, Call&& call) {
  SteadyClock clock;
  std::vector<double> times;
  call();
  for (int i = 0; i < repeat; ++i) {
    const TimePoint start = clock.now();
    call();
    times.push_back(std::chrono::duration<double>(clock.now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void bench_format(const Options& options, const Peaks& peaks, ThreadPool& pool, WeightFormat format) {
  const std::size_t rows = 1536, columns = 1536;
  Random random(1);
  std::vector<std::byte> bytes(rows * row_bytes(format, columns));
  for (std::byte& byte : bytes) byte = std::byte(random.next() & 0x1f);
  const MatrixSource source = {bytes.data(), bytes.size(), format, rows, columns, {}, {}};
  std::vector<PackedMatrix> stack;
  std::size_t total = 0;
  while (total < (std::size_t{96} << 20)) {
    stack.push_back(PackedMatrix::pack(source).value());
    total += stack.back().packed_bytes();
  }
  const Kernels kernels(options.isa);
  for (const std::size_t m : {1u, 2u, 4u, 8u, 32u, 128u, 512u}) {
    // Many rows need few matrices for a steady time, and the stack only matters when memory is the limit.
    const std::size_t used = m <= 8 ? stack.size() : std::max<std::size_t>(1, stack.size() / m);
    Activations x(m, columns, ActivationForm::both);
    for (std::size_t r = 0; r < m; ++r) std::fill_n(x.f32(r), columns, 0.5f);
    kernels.quantize(x, m, {});
    std::vector<float> y(m * rows);
    const double time = median_seconds(options.repeat, [&] {
      pool.run([&](ThreadPool::Member& member) {
        for (std::size_t i = 0; i < used; ++i) {
          kernels.matmul(stack[i], x, m, {.y = y.data(), .stride = rows}, member.slice());
          member.barrier();
        }
      });
    });
    const double read = static_cast<double>(used * stack[0].packed_bytes()) / time;
    const double flops = 2.0 * static_cast<double>(used * m) * rows * columns / time;
    std::printf("%-6s m %-4zu %7.1f GB/s (%5.1f %% of read)  %7.1f GFLOP/s (%5.1f %% of FMA peak)\n",
                std::string(to_string(format)).c_str(), m, read * 1e-9, 100 * read / peaks.bandwidth, flops * 1e-9,
                100 * flops / peaks.flops);
  }
}

void bench_steps(const Options& options, const Peaks& peaks, ThreadPool& pool) {
  const Kernels kernels(options.isa);
  ModelStep model({}, 2048, 32, 2048);
  std::printf("step: %zu MB of weights\n", model.weight_bytes() / 1000000);
  for (const std::uint32_t batch : {1u, 8u, 32u}) {
    for (const std::uint32_t context : {128u, 1024u}) {
      const double time = median_seconds(options.repeat * 3, [&] { model.run(kernels, pool, batch, 1, context - 1); });
      const double read = static_cast<double>(model.weight_bytes()) / time;
      std::printf("decode batch %-2u context %-4u %8.1f tokens/s  weights read at %5.1f GB/s (%5.1f %% of read)\n",
                  batch, context, batch / time, read * 1e-9, 100 * read / peaks.bandwidth);
    }
  }
  for (const std::uint32_t prompt : {128u, 512u, 2048u}) {
    const double time =
        median_seconds(std::max(1, options.repeat / 3), [&] { model.run(kernels, pool, 1, prompt, 0); });
    const double flops = 2 * model.layer_macs() * prompt / time;
    std::printf("prefill %-4u %8.1f tokens/s  %6.1f GFLOP/s in products alone (%5.1f %% of FMA peak)\n", prompt,
                prompt / time, flops * 1e-9, 100 * flops / peaks.flops);
  }
}

void bench_contexts(const Options& options, const Peaks& peaks, ThreadPool& pool) {
  const Kernels kernels(options.isa);
  const ModelShape shape;
  ModelStep model(shape, 1, 1, 8192);
  const double bare = median_seconds(options.repeat * 3, [&] { model.run(kernels, pool, 1, 1, 15); });
  for (const std::uint32_t context : {512u, 1024u, 4096u, 8192u}) {
    const double time = median_seconds(options.repeat * 3, [&] { model.run(kernels, pool, 1, 1, context - 1); });
    const double bytes = 2.0 * 2 * shape.layers * shape.kv_heads * shape.head_dim * context;
    const double read = bytes / (time - bare);
    std::printf(
        "decode batch 1  context %-4u %8.1f tokens/s  %5.2f of context 16  K and V at %5.1f GB/s (%5.1f %% of read)\n",
        context, 1 / time, bare / time, read * 1e-9, 100 * read / peaks.bandwidth);
  }
}

int run(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    if (name == "--threads") options.threads = static_cast<std::uint32_t>(std::atoi(arguments[i + 1]));
    if (name == "--repeat") options.repeat = std::max(1, std::atoi(arguments[i + 1]));
    for (const IsaLevel level : supported_isa_levels()) {
      if (name == "--isa" && arguments[i + 1] == to_string(level)) options.isa = level;
    }
    if (name == "--only") options.only = arguments[i + 1];
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run takes minutes on a busy machine
  ThreadPool pool({.threads = options.threads});
  const Peaks peaks = {read_bandwidth(pool), fma_peak(pool)};
  std::printf("%s, %s kernels, %u threads: read %.1f GB/s, FMA peak %.1f GFLOP/s\n", to_string(cpu_features()).c_str(),
              std::string(to_string(options.isa)).c_str(), options.threads, peaks.bandwidth * 1e-9, peaks.flops * 1e-9);
  if (options.only == "context") {
    bench_contexts(options, peaks, pool);
    return 0;
  }
  if (options.only != "step") {
    for (WeightFormat format : {WeightFormat::q4_1, WeightFormat::q8_0, WeightFormat::q4_0, WeightFormat::q4_k,
                                WeightFormat::q6_k, WeightFormat::bf16, WeightFormat::f16, WeightFormat::f32}) {
      bench_format(options, peaks, pool, format);
    }
  }
  if (options.only != "matmul") {
    bench_steps(options, peaks, pool);
    bench_contexts(options, peaks, pool);
  }
  return 0;
}

}  // namespace
}  // namespace penstock::bench

int main(int count, char** arguments) {
  return penstock::bench::run(count, arguments);
}
