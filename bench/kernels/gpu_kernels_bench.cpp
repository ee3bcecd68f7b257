// gpu_kernels_bench: GPU kernels as a share of what the device reads at best, measured in the same run. Each is timed
// in a chain of launches in a graph, over memory that the caches don't hold.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>

#include "bench/kernels/bench_support.hpp"
#include "common/time/random.hpp"

namespace penstock::bench::gpu {
namespace {

/// Small bf16 numbers: zeros would measure another machine.
void fill_arena(Bench& bench) {
  std::vector<std::uint16_t> values(std::size_t{32} << 20);
  Random random(1);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const std::uint64_t bits = random.next();
    for (std::size_t j = 0; j < 4; ++j) {
      values[i + j] = static_cast<std::uint16_t>(0x3c00u + ((bits >> (16 * j)) & 0x80ffu));
    }
  }
  const std::size_t bytes = values.size() * 2;
  for (std::size_t offset = 0; offset + bytes <= bench.arena.bytes(); offset += bytes) {
    must(bench.arena.upload(values.data(), bytes, bench.stream.get(), offset));
  }
}

void write_json(const Bench& bench, const std::string& path) {
  std::ofstream out(path);
  out << "{\"gpu\": \"" << bench.device.name << "\", \"driver\": " << bench.device.driver
      << ", \"read_bytes_per_second\": " << bench.read_bytes_per_second << ", \"rows\": [\n";
  for (std::size_t i = 0; i < bench.rows.size(); ++i) {
    const Row& row = bench.rows[i];
    out << "{\"kernel\": \"" << row.kernel << "\", \"size\": \"" << row.size << "\", \"variant\": \"" << row.variant
        << "\", \"us\": " << row.microseconds << ", \"bytes\": " << row.bytes;
    if (row.operations > 0) out << ", \"operations\": " << row.operations;
    out << "}" << (i + 1 < bench.rows.size() ? ",\n" : "\n");
  }
  out << "]}\n";
}

int run(const std::string& only, const std::string& json, std::uint64_t arena_bytes) {
  Bench bench;
  bench.device = must(kernels::cuda::device_info());
  bench.stream = must(kernels::cuda::OwnedStream::make());
  bench.arena = must(DeviceBuffer::make(arena_bytes));
  bench.sink = must(DeviceBuffer::make(256));
  fill_arena(bench);
  std::printf("%s, driver %u, %u multiprocessors; shares are of the largest read\n", bench.device.name.c_str(),
              bench.device.driver, bench.device.multiprocessors);
  bench_read(bench);
  const auto wanted = [&](const char* name) { return only.empty() || only == name; };
  if (wanted("skinny")) bench_skinny(bench);
  if (wanted("experts")) bench_experts(bench);
  if (wanted("attention")) bench_attention(bench);
  if (wanted("small")) bench_small(bench);
  if (wanted("sampler")) bench_sampler(bench);
  if (wanted("step")) bench_step(bench);
  if (wanted("gemm")) bench_gemm(bench);
  if (wanted("prefill")) bench_prefill(bench);
  if (wanted("prompt")) bench_prompt(bench);
  if (wanted("fp8") || wanted("gemm_fp8")) fill_arena_with_codes(bench);
  if (wanted("fp8")) {
    bench_skinny_fp8(bench);
    bench_step_fp8(bench);
  }
  if (wanted("gemm_fp8")) bench_gemm_fp8(bench);
  if (!json.empty()) write_json(bench, json);
  return 0;
}

}  // namespace
}  // namespace penstock::bench::gpu

int main(int argc, char** argv) {
  CLI::App app("GPU kernels as a share of the device's read bandwidth");
  std::string only, json;
  std::uint64_t arena_gib = 16;
  app.add_option("--only", only,
                 "read, skinny, experts, attention, small, sampler, step, gemm, prefill, prompt, fp8 or gemm_fp8");
  app.add_option("--json", json, "Where to write all results.");
  app.add_option("--arena-gib", arena_gib, "Memory that reads walk over.");
  CLI11_PARSE(app, argc, argv);
  try {
    return penstock::bench::gpu::run(only, json, arena_gib << 30);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_kernels_bench: %s\n", error.what());
    return 1;
  }
}
