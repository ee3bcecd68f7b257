// Drawing from logits like a language model's: a few likely tokens over a wide bell of others.
#include <cmath>

#include "bench/kernels/bench_support.hpp"
#include "common/time/random.hpp"
#include "kernels/cuda/sampler.hpp"

namespace penstock::bench::gpu {
namespace {

namespace cuda = kernels::cuda;

constexpr std::uint32_t vocabulary = 151936, rows_max = 16;

struct Mode {
  const char* name;
  cuda::SampleRow row;
};

std::vector<Mode> modes() {
  cuda::SampleRow greedy, all, truncated, few, scored, flat;
  greedy.mode = cuda::SampleMode::greedy;
  all.mode = truncated.mode = few.mode = cuda::SampleMode::draw;
  all.uniform = truncated.uniform = few.uniform = 0.4;
  truncated.scale = 1 / 0.7f;
  truncated.top_p = 0.95f;
  few.top_k = 50;
  few.top_p = 0.95f;
  scored = few;
  scored.logprobs = 6;
  flat = truncated;
  flat.scale = 0.3f;
  return {{"greedy", greedy},         {"all", all},         {"top-p", truncated}, {"top-k top-p", few},
          {"and 5 logprobs", scored}, {"top-p, flat", flat}};
}

}  // namespace

void bench_sampler(Bench& bench) {
  const Stream stream = bench.stream.get();
  Random random(3);
  std::vector<float> logits(std::size_t{rows_max} * vocabulary);
  for (float& logit : logits) {
    const double bell = std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
    logit = static_cast<float>(2.5 * bell + (random.below(5000) == 0 ? 14 : 0));
  }
  DeviceBuffer on_logits = must(DeviceBuffer::make(logits.size() * sizeof(float)));
  must(on_logits.upload(logits.data(), on_logits.bytes(), stream));
  DeviceBuffer parameters = must(DeviceBuffer::make(rows_max * sizeof(cuda::SampleRow)));
  const DeviceBuffer out = must(DeviceBuffer::make(rows_max * sizeof(cuda::SampledToken)));
  for (const Mode& mode : modes()) {
    const std::vector<cuda::SampleRow> rows(rows_max, mode.row);
    must(parameters.upload(rows.data(), parameters.bytes(), stream));
    for (const std::uint32_t count : {1u, rows_max}) {
      const cuda::SampleTokens work{
          on_logits.as<float>(),       count, vocabulary, parameters.as<cuda::SampleRow>(), nullptr,
          out.as<cuda::SampledToken>()};
      const double time =
          time_chain(bench, 50, [&](std::uint32_t) { return sample_tokens(work, Start::overlapped, stream); });
      keep(bench, {"sampler", std::to_string(count) + " x " + std::to_string(vocabulary), mode.name, time,
                   4.0 * count * vocabulary});
    }
  }
}

}  // namespace penstock::bench::gpu
