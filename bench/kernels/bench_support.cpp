#include "bench/kernels/bench_support.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <stdexcept>

#include "common/time/random.hpp"
#include "kernels/cuda/read_probe.hpp"

namespace penstock::bench::gpu {

using kernels::cuda::Graph;
using kernels::cuda::Stopwatch;

double time_chain(Bench& bench, std::uint32_t launches, const std::function<Result<void>(std::uint32_t)>& launch) {
  const Stream stream = bench.stream.get();
  const Graph graph = must(Graph::capture(stream, [&]() -> Result<void> {
    for (std::uint32_t i = 0; i < launches; ++i) PENSTOCK_TRY_VOID(launch(i));
    return {};
  }));
  Stopwatch watch = must(Stopwatch::make());
  std::vector<double> times;
  for (std::uint32_t replay = 0; replay < bench.replays + 1; ++replay) {
    must(watch.start(stream));
    must(graph.launch(stream));
    must(watch.stop(stream));
    const double seconds = must(watch.seconds());
    if (replay > 0) times.push_back(seconds * 1e6 / launches);  // the first one warms up
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

Walk::Walk(const Bench& bench, std::uint64_t bytes) : step((bytes + 255) / 256 * 256) {
  constexpr std::uint32_t launches_max = 48;
  launches = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bench.arena.bytes() / step, 1, launches_max));
}

const std::uint16_t* Walk::at(const Bench& bench, std::uint32_t index) const {
  return reinterpret_cast<const std::uint16_t*>(bench.arena.as<std::byte>() + index * step);
}

void fill_ordinary(Bench& bench, DeviceBuffer& buffer) {
  static const std::vector<std::uint16_t> values = [] {
    std::vector<std::uint16_t> made(std::size_t{8} << 20);
    Random random(2);
    for (std::uint16_t& value : made) {
      const auto sum = static_cast<float>(2 * (random.uniform() + random.uniform() + random.uniform() - 1.5));
      value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(sum) >> 16);
    }
    return made;
  }();
  for (std::size_t offset = 0; offset < buffer.bytes(); offset += values.size() * 2) {
    must(
        buffer.upload(values.data(), std::min(values.size() * 2, buffer.bytes() - offset), bench.stream.get(), offset));
  }
}

void fill_arena_with_codes(Bench& bench) {
  std::vector<std::uint8_t> codes(std::size_t{32} << 20);
  Random random(3);
  for (std::size_t i = 0; i < codes.size(); i += 8) {
    // Any sign and mantissa, one of eight exponents from 2^-3 to 2^4.
    const std::uint64_t bits = (random.next() & 0xbfbfbfbfbfbfbfbfull) + 0x2020202020202020ull;
    for (std::size_t j = 0; j < 8; ++j) codes[i + j] = static_cast<std::uint8_t>(bits >> (8 * j));
  }
  for (std::size_t offset = 0; offset + codes.size() <= bench.arena.bytes(); offset += codes.size()) {
    must(bench.arena.upload(codes.data(), codes.size(), bench.stream.get(), offset));
  }
}

void keep(Bench& bench, Row row) {
  const double share = bench.read_bytes_per_second > 0 ? row.bytes_per_second() / bench.read_bytes_per_second : 1;
  std::printf("%-16s %-22s %-18s %10.2f us %8.1f MB %8.0f GB/s %6.1f %%", row.kernel.c_str(), row.size.c_str(),
              row.variant.c_str(), row.microseconds, row.bytes / 1e6, row.bytes_per_second() / 1e9, 100 * share);
  if (row.operations > 0) std::printf(" %6.0f TFLOP/s", row.operations / row.microseconds / 1e6);
  std::printf("\n");
  std::fflush(stdout);
  bench.rows.push_back(std::move(row));
}

void bench_read(Bench& bench) {
  const auto measure = [&](std::uint64_t bytes, std::uint32_t blocks, Start start) {
    const Walk walk(bench, bytes);
    return time_chain(bench, walk.launches, [&](std::uint32_t i) {
      return kernels::cuda::read_probe(walk.at(bench, i), bytes, blocks, bench.sink.as<float>(), start,
                                       bench.stream.get());
    });
  };
  for (const std::uint64_t megabytes : {8192u, 1024u, 256u, 128u, 64u, 32u, 16u, 8u}) {
    const std::uint64_t bytes = megabytes << 20;
    if (bytes > bench.arena.bytes()) continue;
    for (const Start start : {Start::ordered, Start::overlapped}) {
      Row best{"read", std::to_string(megabytes) + " MiB", "", 1e30, static_cast<double>(bytes)};
      for (const std::uint32_t each : {1u, 2u, 4u, 8u}) {
        const double time = measure(bytes, bench.device.multiprocessors * each, start);
        if (time < best.microseconds) {
          best.microseconds = time;
          best.variant = std::string(start == Start::ordered ? "ordered" : "overlapped") + " x" + std::to_string(each);
        }
      }
      if (bench.read_bytes_per_second == 0) bench.read_bytes_per_second = best.bytes_per_second();
      keep(bench, std::move(best));
    }
  }
}

}  // namespace penstock::bench::gpu
