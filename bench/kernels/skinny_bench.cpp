// Matrices of known models at small batches, every shape and cluster; the best of each and what the rule chooses.
#include <cstdio>
#include <stdexcept>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/skinny_gemm.hpp"

namespace penstock::bench::gpu {
namespace {

using kernels::cuda::SkinnyConfig;
using kernels::cuda::SkinnyProduct;

struct Matrix {
  std::uint32_t rows, columns;
  bool is_swiglu;
};
// Llama-3.1-8B: qkv, o, gate and up, down, head; Qwen3-8B: gate and up, down; a rank of four of the first.
constexpr Matrix matrices[] = {{6144, 4096, false},   {4096, 4096, false}, {28672, 4096, true},  {4096, 14336, false},
                               {128256, 4096, false}, {24576, 4096, true}, {4096, 12288, false}, {1536, 4096, false},
                               {7168, 4096, true},    {4096, 3584, false}};

struct Buffers {
  DeviceBuffer x, y, residual;
};

SkinnyProduct product_of(const Matrix& matrix, std::uint32_t tokens, const Buffers& buffers) {
  SkinnyProduct p;
  p.x = buffers.x.as<std::uint16_t>();
  p.y = buffers.y.data();
  p.rows = matrix.rows;
  p.columns = matrix.columns;
  p.tokens = tokens;
  p.x_stride = matrix.columns;
  p.y_stride = matrix.is_swiglu ? matrix.rows / 2 : matrix.rows;
  const bool adds = !matrix.is_swiglu && matrix.rows == 4096;
  p.residual = adds ? buffers.residual.as<std::uint16_t>() : nullptr;
  p.residual_stride = matrix.rows;
  return p;
}

double time_product(Bench& bench, const Matrix& matrix, SkinnyProduct p, SkinnyConfig config, Start start) {
  const Walk walk(bench, std::uint64_t{2} * matrix.rows * matrix.columns);
  return time_chain(bench, walk.launches, [&](std::uint32_t i) {
    p.weights = walk.at(bench, i);
    return matrix.is_swiglu ? skinny_gemm_swiglu(p, config, start, bench.stream.get())
                            : skinny_gemm(p, config, start, bench.stream.get());
  });
}

std::string name_of(SkinnyConfig config) {
  return "s" + std::to_string(config.shape) + " c" + std::to_string(config.cluster);
}

void bench_product(Bench& bench, const Matrix& matrix, std::uint32_t tokens, const Buffers& buffers) {
  const SkinnyProduct p = product_of(matrix, tokens, buffers);
  const auto bytes = static_cast<double>(kernels::cuda::bytes_of(p));
  const std::string size =
      std::to_string(tokens) + " x " + std::to_string(matrix.columns) + " x " + std::to_string(matrix.rows);
  const std::string kernel = matrix.is_swiglu ? "skinny+swiglu" : "skinny";
  Row best{kernel, size, "", 1e30, bytes};
  SkinnyConfig best_config;
  std::string all;
  for (std::uint8_t shape = 0; shape < kernels::cuda::skinny_shapes().size(); ++shape) {
    for (const std::uint8_t cluster : {1, 2, 4, 8}) {
      const SkinnyConfig config{shape, cluster};
      const double time = time_product(bench, matrix, p, config, Start::overlapped);
      all += name_of(config) + " " + std::to_string(time).substr(0, 6) + "; ";
      if (time < best.microseconds) {
        best.microseconds = time;
        best_config = config;
      }
    }
  }
  best.variant = "best " + name_of(best_config);
  keep(bench, best);
  const SkinnyConfig rule = kernels::cuda::choose_skinny(matrix.rows, matrix.columns, tokens);
  keep(bench, {kernel, size, "rule " + name_of(rule), time_product(bench, matrix, p, rule, Start::overlapped), bytes});
  keep(bench, {kernel, size, "best, ordered", time_product(bench, matrix, p, best_config, Start::ordered), bytes});
  std::fprintf(stderr, "%s %s: %s\n", kernel.c_str(), size.c_str(), all.c_str());
}

}  // namespace

void bench_skinny(Bench& bench) {
  constexpr std::size_t values = std::size_t{16} * 131072;
  Buffers buffers{must(DeviceBuffer::make(values * 2)), must(DeviceBuffer::make(values * 2)),
                  must(DeviceBuffer::make(values * 2))};
  must(buffers.x.fill(0x3c, bench.stream.get()));
  must(buffers.residual.fill(0x3c, bench.stream.get()));
  for (const Matrix& matrix : matrices) {
    for (const std::uint32_t tokens : {1u, 4u, 8u, 16u}) bench_product(bench, matrix, tokens, buffers);
  }
}

}  // namespace penstock::bench::gpu
