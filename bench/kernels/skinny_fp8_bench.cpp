// Matrices of known models in FP8 at small batches, every shape and the clusters that can matter; the best of each and
// what the rule chooses, with a scale for each row and for each block.
#include <algorithm>
#include <cstdio>

#include "bench/kernels/bench_support.hpp"
#include "kernels/cuda/skinny_fp8.hpp"

namespace penstock::bench::gpu {
namespace {

using kernels::cuda::Fp8Scales;
using kernels::cuda::SkinnyConfig;
using kernels::cuda::SkinnyProduct;

struct Matrix {
  std::uint32_t rows, columns;
  bool is_swiglu;
};
// Llama-3.1-8B: qkv, o, gate and up, down; Qwen3-8B: gate and up, down; Llama-3.3-70B: qkv, o, gate and up, down.
constexpr Matrix matrices[] = {{6144, 4096, false}, {4096, 4096, false},  {28672, 4096, true},  {4096, 14336, false},
                               {24576, 4096, true}, {4096, 12288, false}, {10240, 8192, false}, {8192, 8192, false},
                               {57344, 8192, true}, {8192, 28672, false}};

struct Buffers {
  DeviceBuffer x, y, residual, scales;
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
  const bool adds = !matrix.is_swiglu && (matrix.rows == 4096 || matrix.rows == 8192);
  p.residual = adds ? buffers.residual.as<std::uint16_t>() : nullptr;
  p.residual_stride = matrix.rows;
  return p;
}

/// One matrix with some tokens; measures.
struct Subject {
  Bench& bench;
  const Matrix& matrix;
  SkinnyProduct product;
  const Buffers& buffers;

  double time(Fp8Scales kind, SkinnyConfig config, Start start) const {
    const Walk walk(bench, std::uint64_t{matrix.rows} * matrix.columns);
    return time_chain(bench, walk.launches, [&](std::uint32_t i) {
      const kernels::cuda::Fp8Weights weights{reinterpret_cast<const std::uint8_t*>(walk.at(bench, i)),
                                              buffers.scales.as<float>(), kind};
      return matrix.is_swiglu ? skinny_fp8_swiglu(product, weights, config, start, bench.stream.get())
                              : skinny_fp8(product, weights, config, start, bench.stream.get());
    });
  }
  void report(const std::string& variant, Fp8Scales kind, double microseconds) const {
    const std::string size =
        std::to_string(product.tokens) + " x " + std::to_string(matrix.columns) + " x " + std::to_string(matrix.rows);
    const auto bytes = static_cast<double>(kernels::cuda::bytes_of(product, kind));
    keep(bench, {matrix.is_swiglu ? "fp8+swiglu" : "fp8", size, variant, microseconds, bytes});
  }
};

std::string name_of(SkinnyConfig config) {
  return "s" + std::to_string(config.shape) + " c" + std::to_string(config.cluster);
}

void bench_product(const Subject& subject) {
  double best = 1e30;
  SkinnyConfig best_config;
  std::string all;
  for (std::uint8_t shape = 0; shape < kernels::cuda::skinny_fp8_shapes().size(); ++shape) {
    for (const std::uint8_t cluster : {1, 2, 4}) {
      const SkinnyConfig config{shape, cluster};
      const double time = subject.time(Fp8Scales::row, config, Start::overlapped);
      all += name_of(config) + " " + std::to_string(time).substr(0, 6) + "; ";
      if (time < best) {
        best = time;
        best_config = config;
      }
    }
  }
  subject.report("rows, best " + name_of(best_config), Fp8Scales::row, best);
  const SkinnyProduct& p = subject.product;
  const SkinnyConfig rule = kernels::cuda::choose_skinny_fp8(p.rows, p.columns, p.tokens);
  for (const Fp8Scales kind : {Fp8Scales::row, Fp8Scales::block}) {
    const std::string name = (kind == Fp8Scales::row ? "rows, rule " : "blocks, rule ") + name_of(rule);
    subject.report(name, kind, subject.time(kind, rule, Start::overlapped));
  }
  std::fprintf(stderr, "fp8 %u x %u x %u: %s\n", p.tokens, p.columns, p.rows, all.c_str());
}

}  // namespace

void bench_skinny_fp8(Bench& bench) {
  constexpr std::size_t values = std::size_t{16} * 65536;
  Buffers buffers{must(DeviceBuffer::make(values * 2)), must(DeviceBuffer::make(values * 2)),
                  must(DeviceBuffer::make(values * 2)), must(DeviceBuffer::make(values))};
  fill_ordinary(bench, buffers.x);
  fill_ordinary(bench, buffers.residual);
  must(buffers.scales.fill(0x3b, bench.stream.get()));  // 0.0029
  for (const Matrix& matrix : matrices) {
    for (const std::uint32_t tokens : {1u, 4u, 8u, 16u}) {
      bench_product({bench, matrix, product_of(matrix, tokens, buffers), buffers});
    }
  }
}

}  // namespace penstock::bench::gpu
