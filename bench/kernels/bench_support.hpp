// Measuring GPU kernels: chains of launches in a graph over memory far larger than the caches, and rows of results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"

namespace penstock::bench::gpu {

using kernels::cuda::DeviceBuffer;
using kernels::cuda::Start;
using kernels::cuda::Stream;

/// One measured kernel. Times are of one launch in a chain, start included.
struct Row {
  std::string kernel;
  std::string size;
  std::string variant;
  double microseconds = 0;
  double bytes = 0;
  double operations = 0;  // of the matrix units, where they are the limit
  double bytes_per_second() const { return bytes / microseconds * 1e6; }
};

/// What all benchmarks share: device, stream, memory full of small random numbers, and what has been measured.
struct Bench {
  kernels::cuda::DeviceInfo device;
  kernels::cuda::OwnedStream stream;
  DeviceBuffer arena;
  DeviceBuffer sink;
  double read_bytes_per_second = 0;  // of a large read
  std::vector<Row> rows;
  std::uint32_t replays = 7;
};

/// Throws with the error's message: a benchmark that cannot measure ends.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

template <class T>
DeviceBuffer uploaded(const std::vector<T>& values, Stream stream) {
  DeviceBuffer buffer = must(DeviceBuffer::make(values.size() * sizeof(T)));
  must(buffer.upload(values.data(), values.size() * sizeof(T), stream));
  return buffer;
}

/// Records `launches` calls of `launch(index)` into a graph and gives the median microseconds of one, over replays.
double time_chain(Bench& bench, std::uint32_t launches, const std::function<Result<void>(std::uint32_t)>& launch);

/// Launches that walk over the arena in steps of `bytes` without meeting the same bytes while they may be cached.
struct Walk {
  Walk(const Bench& bench, std::uint64_t bytes);
  std::uint32_t launches = 1;
  std::uint64_t step = 0;
  const std::uint16_t* at(const Bench& bench, std::uint32_t index) const;
};

/// Fills a buffer with numbers about normal: constant ones take less power, tiny ones
/// make softmax easy.
void fill_ordinary(Bench& bench, DeviceBuffer& buffer);

/// Fills the arena with e4m3 codes of ordinary weights; other benchmarks want what it had before.
void fill_arena_with_codes(Bench& bench);

/// Prints the row with its share of the large read, or its operations a second.
void keep(Bench& bench, Row row);

void bench_read(Bench& bench);
void bench_skinny(Bench& bench);
void bench_experts(Bench& bench);
void bench_attention(Bench& bench);
void bench_sampler(Bench& bench);
void bench_small(Bench& bench);
void bench_step(Bench& bench);
/// The next three need fill_arena_with_codes().
void bench_gemm_fp8(Bench& bench);
void bench_skinny_fp8(Bench& bench);
void bench_step_fp8(Bench& bench);
void bench_gemm(Bench& bench);
void bench_prefill(Bench& bench);
void bench_prompt(Bench& bench);

}  // namespace penstock::bench::gpu
