#include "bench/engine/kernels/peak.hpp"

#include <algorithm>
#include <cstdint>

#include "common/time/clock.hpp"
#include "kernels/cpu/aligned_buffer.hpp"
#include "kernels/cpu/features.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::bench {
namespace {

using kernels::cpu::ThreadPool;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Sums whole cache lines in four chains; the compiler's vectors of the baseline suffice to saturate memory.
std::uint64_t sum_range(const std::uint64_t* data, std::size_t count) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    a += data[i] + data[i + 1];
    b += data[i + 2] + data[i + 3];
    c += data[i + 4] + data[i + 5];
    d += data[i + 6] + data[i + 7];
  }
  return a + b + c + d;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float fma_chains(std::size_t rounds) {
  __m256 chains[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) chains[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999f), step = _mm256_set1_ps(0.001f);
  for (std::size_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      chains[i] = _mm256_fmadd_ps(chains[i], factor, step);
      asm volatile("" : "+x"(chains[i]));  // one instruction each, in a register
    }
  }
  float total = 0;
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) total += _mm256_cvtss_f32(chains[i]);
  return total;
}
#endif

float plain_chains(std::size_t rounds) {
  float chains[48];
  for (int i = 0; i < 48; ++i) chains[i] = static_cast<float>(i);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (float& chain : chains) chain = chain * 0.999f + 0.001f;
  }
  float total = 0;
  for (float chain : chains) total += chain;
  return total;
}

}  // namespace

double read_bandwidth(ThreadPool& pool) {
  const std::size_t bytes = std::size_t{256} << 20;
  kernels::cpu::AlignedBuffer buffer(bytes);
  const auto* data = reinterpret_cast<const std::uint64_t*>(buffer.data());
  double best = 0;
  std::atomic<std::uint64_t> sink{0};
  SteadyClock clock;
  for (int run = 0; run < 6; ++run) {
    const TimePoint start = clock.now();
    pool.run([&](ThreadPool::Member& member) {
      const kernels::cpu::IndexRange range = split(bytes / 8, member.slice(), 512);
      sink += sum_range(data + range.begin, range.end - range.begin);
    });
    best = std::max(best, static_cast<double>(bytes) / seconds(clock.now() - start));
  }
  return best;
}

double fma_peak(ThreadPool& pool) {
  const std::size_t rounds = 2'000'000;
  const bool wide = is_supported(kernels::cpu::IsaLevel::avx2);
  double best = 0;
  std::atomic<int> sink{0};
  SteadyClock clock;
  for (int run = 0; run < 5; ++run) {
    const TimePoint start = clock.now();
    pool.run([&](ThreadPool::Member&) {
#if defined(__x86_64__)
      sink += static_cast<int>(wide ? fma_chains(rounds) : plain_chains(rounds));
#else
      sink += static_cast<int>(plain_chains(rounds));
#endif
    });
    const double operations = 2.0 * (wide ? 96 : 48) * static_cast<double>(rounds) * pool.size();
    best = std::max(best, operations / seconds(clock.now() - start));
  }
  return best;
}

}  // namespace penstock::bench
