// Products of more than 16 tokens by cuBLASLt: its first choice, and whether another of its choices is better.
#include <cstdio>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/gemm.hpp"

namespace penstock::bench::gpu {
namespace {

struct Matrix {
  std::uint32_t rows, columns;
  bool adds;
};
// Llama-3.1-8B: qkv, o, gate and up, down, head.
constexpr Matrix matrices[] = {
    {6144, 4096, false}, {4096, 4096, true}, {28672, 4096, false}, {4096, 14336, true}, {128256, 4096, false}};
constexpr std::uint32_t tokens_max = 8192, columns_max = 14336, rows_max = 28672;

void bench_product(Bench& bench, kernels::cuda::Gemm& gemm, const Matrix& matrix, std::uint32_t tokens,
                   const DeviceBuffer& x, const DeviceBuffer& y) {
  kernels::cuda::GemmProduct p;
  p.x = x.as<std::uint16_t>();
  p.y = y.data();
  p.rows = matrix.rows;
  p.columns = matrix.columns;
  p.tokens = tokens;
  p.x_stride = matrix.columns;
  p.y_stride = matrix.rows;
  p.residual = matrix.adds ? y.as<std::uint16_t>() : nullptr;
  const Walk walk(bench, std::uint64_t{2} * matrix.rows * matrix.columns);
  const auto measure = [&](std::uint32_t choice) {
    return time_chain(bench, tokens > 256 ? std::min(walk.launches, 8u) : walk.launches, [&](std::uint32_t i) {
      p.weights = walk.at(bench, i);
      return gemm.run_choice(p, choice, bench.stream.get());
    });
  };
  p.weights = walk.at(bench, 0);
  const std::string size =
      std::to_string(tokens) + " x " + std::to_string(matrix.columns) + " x " + std::to_string(matrix.rows);
  const auto bytes = static_cast<double>(bytes_of(p));
  const double operations = operations_of(p);
  must(gemm.run(p, bench.stream.get()));  // kernels are loaded when they first run, which no recording may do
  const double first = measure(0);
  keep(bench, {"gemm", size, "first choice", first, bytes, operations});
  Row best{"gemm", size, "", first, bytes, operations};
  for (std::uint32_t choice = 1; choice < kernels::cuda::Gemm::choices_max; ++choice) {
    if (!gemm.run_choice(p, choice, bench.stream.get())) break;
    const double time = measure(choice);
    if (time < 0.98 * best.microseconds) {
      best.microseconds = time;
      best.variant = "choice " + std::to_string(choice);
    }
  }
  if (!best.variant.empty()) keep(bench, best);
}

/// As above with e4m3 weights and tokens: a scale a row and token, with both ways to add up, and blocks.
void bench_fp8_product(Bench& bench, kernels::cuda::Gemm& gemm, const Matrix& matrix, std::uint32_t tokens,
                       std::uint8_t* codes, const DeviceBuffer& scales, const DeviceBuffer& y) {
  using kernels::cuda::Fp8Scales, kernels::cuda::Fp8Sums;
  struct Way {
    const char* name;
    Fp8Scales kind;
    Fp8Sums sums;
  };
  for (const Way& way : {Way{"fp8 rows", Fp8Scales::row, Fp8Sums::fast},
                         {"fp8 rows, exact sums", Fp8Scales::row, Fp8Sums::exact},
                         {"fp8 blocks", Fp8Scales::block, Fp8Sums::exact}}) {
    kernels::cuda::GemmProduct p;
    p.y = y.data();
    p.rows = matrix.rows;
    p.columns = matrix.columns;
    p.tokens = tokens;
    p.y_stride = matrix.rows;
    p.residual = matrix.adds ? y.as<std::uint16_t>() : nullptr;
    p.fp8_x = {codes, scales.as<float>(), way.kind};
    p.fp8_sums = way.sums;
    const Walk walk(bench, std::uint64_t{matrix.rows} * matrix.columns);
    const auto run = [&](std::uint32_t i, std::uint32_t choice) {
      p.fp8_weights = {reinterpret_cast<const std::uint8_t*>(walk.at(bench, i)), scales.as<float>(), way.kind};
      return gemm.run_choice(p, choice, bench.stream.get());
    };
    const std::string size =
        std::to_string(tokens) + " x " + std::to_string(matrix.columns) + " x " + std::to_string(matrix.rows);
    if (const auto started = run(0, 0); !started) {
      std::printf("gemm %s %s: %s\n", size.c_str(), way.name, started.error().message.c_str());
      continue;
    }
    Row best{"gemm", size, way.name, 0, static_cast<double>(bytes_of(p)), operations_of(p)};
    for (std::uint32_t choice = 0; choice < 3 && run(0, choice); ++choice) {
      const double time = time_chain(bench, tokens > 256 ? std::min(walk.launches, 8u) : walk.launches,
                                     [&](std::uint32_t i) { return run(i, choice); });
      if (choice > 0 && time > 0.98 * best.microseconds) continue;
      best.microseconds = time;
      best.variant = std::string(way.name) + (choice > 0 ? ", choice " + std::to_string(choice) : "");
      keep(bench, best);
    }
  }
}

}  // namespace

void bench_gemm(Bench& bench) {
  auto gemm = must(kernels::cuda::Gemm::make());
  // Ordinary numbers: constant ones take less power.
  const std::size_t x_bytes = std::size_t{tokens_max} * columns_max * 2,
                    y_bytes = std::size_t{tokens_max} * rows_max * 2;
  auto x = must(DeviceBuffer::make(x_bytes)), y = must(DeviceBuffer::make(y_bytes));
  fill_ordinary(bench, x);
  fill_ordinary(bench, y);
  for (const Matrix& matrix : matrices) {
    for (const std::uint32_t tokens : {17u, 32u, 64u, 128u, 512u, 2048u, 8192u}) {
      if (std::uint64_t{tokens} * matrix.rows > std::uint64_t{tokens_max} * rows_max) continue;
      bench_product(bench, gemm, matrix, tokens, x, y);
    }
  }
}

void bench_gemm_fp8(Bench& bench) {
  auto gemm = must(kernels::cuda::Gemm::make());
  auto y = must(DeviceBuffer::make(std::size_t{tokens_max} * rows_max * 2));
  std::uint8_t* const codes = bench.arena.as<std::uint8_t>();
  fill_ordinary(bench, y);
  const DeviceBuffer scales =
      uploaded(std::vector<float>(std::size_t{tokens_max} * (columns_max / 128), 0.01f), bench.stream.get());
  for (const Matrix& matrix : matrices) {
    if (matrix.rows > rows_max) continue;  // heads are bf16
    for (const std::uint32_t tokens : {24u, 64u, 256u, 2048u, 8192u}) {
      bench_fp8_product(bench, gemm, matrix, tokens, codes, scales, y);
    }
  }
}

}  // namespace penstock::bench::gpu
