// The sampler on the GPU against the one for processors: the same tokens for the same parameters and random numbers.
// Exponentials differ in their last bits, so that a draw right at a border between two tokens may fall to either; such
// draws must be rare, and all else must be equal.
#include "kernels/cuda/sampler.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "tests/kernel/support.hpp"
#include "worker/core/sampling/sampler.hpp"
#include "worker/executor/cuda/row_sampler.hpp"

namespace penstock::worker {
namespace {

using kernels::cuda::test::GpuTest;
using kernels::cuda::test::Guarded;
using kernels::cuda::test::must;

struct Draw {
  protocol::SamplingParams params;
  std::vector<TokenId> prompt, output, suppressed;
};

enum class Rows { peaked, flat, tied };

std::vector<float> make_rows(Rows kind, std::uint32_t rows, std::uint32_t vocabulary, Random& random) {
  std::vector<float> logits(std::size_t{rows} * vocabulary);
  for (float& logit : logits) {
    const double bell = std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
    switch (kind) {
      case Rows::peaked:
        logit = static_cast<float>(2.5 * bell + (random.below(5000) == 0 ? 8 : 0));
        break;
      case Rows::flat:
        logit = static_cast<float>(0.05 * bell);
        break;
      case Rows::tied:
        logit = static_cast<float>(std::round(bell)) * (random.below(2) == 0 ? 1.0f : -1.0f);
        break;
    }
  }
  return logits;
}

class GpuSamplerTest : public GpuTest {
 protected:
  static constexpr std::uint32_t adjustments_max = 100000;
  static std::map<std::tuple<Rows, std::uint32_t, std::uint32_t>, std::vector<float>> known_rows_;

  static SampleInput input_of(const Draw& draw, std::uint32_t position) {
    SampleInput input;
    input.params = &draw.params;
    input.choice = 1;
    input.position = position;
    input.prompt = draw.prompt;
    input.output = draw.output;
    input.suppressed = draw.suppressed;
    return input;
  }

  /// How many rows differ from the processor's.
  std::uint32_t differing(const std::vector<float>& logits, std::uint32_t vocabulary, const Draw& draw) {
    const auto rows = static_cast<std::uint32_t>(logits.size() / vocabulary);
    RowSampler gpu = must(RowSampler::make(vocabulary, rows, adjustments_max));
    const Guarded<float> on_gpu(logits, stream_.get());
    gpu.rows().clear();
    for (std::uint32_t i = 0; i < rows; ++i) EXPECT_TRUE(gpu.rows().add(i, input_of(draw, i)));
    must(gpu.queue(on_gpu.data(), rows, stream_.get()));
    wait();
    Sampler cpu(vocabulary);
    std::uint32_t different = 0;
    for (std::uint32_t i = 0; i < rows; ++i) {
      const SampleInput input = input_of(draw, i);
      const std::span<const float> row(logits.data() + std::size_t{i} * vocabulary, vocabulary);
      const SequenceResult expected = cpu.sample(row, input),
                           actual = result_of(gpu.results()[i], input.params->logprobs);
      EXPECT_EQ(actual.not_finite, expected.not_finite);
      if (actual.token != expected.token) {
        ++different;
      } else if (expected.logprobs) {
        compare(*actual.logprobs, *expected.logprobs);
      }
    }
    return different;
  }
  static void compare(const protocol::PositionLogprobs& actual, const protocol::PositionLogprobs& expected) {
    EXPECT_EQ(actual.rank, expected.rank);
    EXPECT_NEAR(actual.chosen.logprob, expected.chosen.logprob, 2e-5);
    ASSERT_EQ(actual.top.size(), expected.top.size());
    for (std::size_t i = 0; i < expected.top.size(); ++i) {
      EXPECT_EQ(actual.top[i].token, expected.top[i].token) << i;
      EXPECT_NEAR(actual.top[i].logprob, expected.top[i].logprob, 2e-5) << i;
    }
  }

  void expect_same(const Draw& draw, const std::string& what, std::uint32_t rows = 96) {
    std::uint32_t different = 0, drawn = 0;
    for (const std::uint32_t vocabulary : {1u, 7u, 288u, 49152u, 151936u}) {
      for (const Rows kind : {Rows::peaked, Rows::flat, Rows::tied}) {
        Random random(vocabulary + static_cast<std::uint32_t>(kind));
        Draw fitting = draw;
        for (auto* tokens : {&fitting.prompt, &fitting.output, &fitting.suppressed}) {
          for (TokenId& token : *tokens) token %= vocabulary;
        }
        if (vocabulary == 1) fitting.suppressed.clear();
        for (auto& [token, bias] : fitting.params.logit_bias) token %= vocabulary;
        const std::uint32_t count = vocabulary > 1000 ? std::max(1u, rows / 4) : rows;  // the processor takes its time
        auto& logits = known_rows_[{kind, vocabulary, count}];
        if (logits.empty()) logits = make_rows(kind, count, vocabulary, random);
        different += differing(logits, vocabulary, fitting);
        drawn += count;
      }
    }
    EXPECT_LE(different * 500, drawn) << what << ": " << different << " of " << drawn << " differ";
  }
};

Draw with(float temperature, std::uint32_t top_k, float top_p, float min_p) {
  Draw draw;
  draw.params.temperature = temperature;
  draw.params.top_k = top_k;
  draw.params.top_p = top_p;
  draw.params.min_p = min_p;
  draw.params.seed = 0x1234567890abcdefull;
  return draw;
}

std::map<std::tuple<Rows, std::uint32_t, std::uint32_t>, std::vector<float>> GpuSamplerTest::known_rows_;

TEST_F(GpuSamplerTest, GreedyTakesTheLowestOfEqualTokens) {
  expect_same(with(0, 0, 1, 0), "greedy");
  expect_same(with(0.7f, 1, 1, 0), "top-k 1");
}

TEST_F(GpuSamplerTest, DrawsWithoutTruncation) {
  for (const float temperature : {0.3f, 1.0f, 3.0f}) {
    expect_same(with(temperature, 0, 1, 0), "temperature " + std::to_string(temperature));
  }
}

TEST_F(GpuSamplerTest, DrawsWithEveryTruncation) {
  for (const std::uint32_t top_k : {0u, 40u, 5000u, 200000u}) {
    for (const float top_p : {0.1f, 0.95f, 1.0f}) {
      for (const float min_p : {0.0f, 0.05f}) {
        expect_same(
            with(0.8f, top_k, top_p, min_p),
            "top-k " + std::to_string(top_k) + ", top-p " + std::to_string(top_p) + ", min-p " + std::to_string(min_p),
            24);
      }
    }
  }
}

TEST_F(GpuSamplerTest, AppliesPenaltiesBiasAndSuppression) {
  Draw draw = with(0.8f, 0, 0.95f, 0);
  for (TokenId i = 0; i < 3000; ++i) draw.prompt.push_back(i * 7919 % 100003);
  for (TokenId i = 0; i < 200; ++i) draw.output.push_back(i * i % 1009);
  draw.suppressed = {0, 1, 2, 40000};
  draw.params.repetition_penalty = 1.3f;
  expect_same(draw, "repetition", 24);
  draw.params.presence_penalty = 0.7f;
  draw.params.frequency_penalty = -0.4f;
  expect_same(draw, "all penalties", 24);
  for (TokenId i = 0; i < 300; ++i) draw.params.logit_bias.push_back({i * 31, 0.03f * static_cast<float>(i % 100)});
  expect_same(draw, "and bias", 24);
  draw.params.temperature = 0;
  expect_same(draw, "greedy", 24);
}

TEST_F(GpuSamplerTest, GivesLogprobsOfTheRawRow) {
  for (const std::uint32_t count : {0u, 1u, 5u, 20u}) {
    Draw draw = with(0.9f, 30, 0.9f, 0);
    draw.params.logprobs = count;
    expect_same(draw, std::to_string(count) + " logprobs", 16);
    draw.params.logit_bias = {{3, 5.0f}, {100, -5.0f}};
    expect_same(draw, std::to_string(count) + " logprobs, biased", 16);
  }
}

TEST_F(GpuSamplerTest, NumbersThatAreNoneFailTheirRowOnly) {
  constexpr std::uint32_t vocabulary = 5000;
  Random random(1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    auto logits = make_rows(Rows::peaked, 3, vocabulary, random);
    logits[vocabulary + 4321] = bad;
    EXPECT_EQ(differing(logits, vocabulary, with(0.8f, 0, 0.9f, 0)), 0u);
  }
  // Nothing left to draw.
  Draw draw = with(0.8f, 0, 1, 0);
  for (TokenId i = 0; i < 7; ++i) draw.suppressed.push_back(i);
  EXPECT_EQ(differing(make_rows(Rows::peaked, 2, 7, random), 7, draw), 0u);
}

TEST_F(GpuSamplerTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr std::uint32_t vocabulary = 30000, rows = 20;
  Random random(5);
  const auto logits = make_rows(Rows::flat, rows, vocabulary, random);
  const Draw draw = with(1, 0, 0.95f, 0);
  const auto tokens = [&](std::uint32_t first, std::uint32_t count) {
    RowSampler gpu = must(RowSampler::make(vocabulary, rows, adjustments_max));
    const Guarded<float> on_gpu(logits, stream_.get());
    for (std::uint32_t i = 0; i < count; ++i) gpu.rows().add(i, input_of(draw, first + i));
    must(gpu.queue(on_gpu.data() + std::size_t{first} * vocabulary, count, stream_.get()));
    wait();
    std::vector<TokenId> drawn;
    for (std::uint32_t i = 0; i < count; ++i) drawn.push_back(gpu.results()[i].chosen.token);
    return drawn;
  };
  const auto together = tokens(0, rows);
  for (std::uint32_t i = 0; i < rows; ++i) EXPECT_EQ(tokens(i, 1).front(), together[i]);
}

TEST_F(GpuSamplerTest, ResultsGoWhereTheirRowsSayAndTokensBesideThem) {
  constexpr std::uint32_t vocabulary = 3000, rows = 3, offset = 4, untouched = 77;
  Random random(6);
  const auto logits = make_rows(Rows::peaked, rows, vocabulary, random);
  std::vector<kernels::cuda::SampleRow> parameters(rows);
  for (auto& row : parameters) {
    row.mode = kernels::cuda::SampleMode::greedy;
    row.result_offset = offset;
  }
  parameters[1].mode = kernels::cuda::SampleMode::skip;
  const Guarded<float> on_gpu(logits, stream_.get());
  const Guarded<std::uint32_t> drawn(std::vector<std::uint32_t>(offset + rows, untouched), stream_.get());
  auto on_rows = must(kernels::cuda::DeviceBuffer::make(rows * sizeof(kernels::cuda::SampleRow)));
  must(on_rows.upload(parameters.data(), rows * sizeof(kernels::cuda::SampleRow), stream_.get()));
  const auto out = must(kernels::cuda::PinnedBuffer::make((offset + rows) * sizeof(kernels::cuda::SampledToken)));
  kernels::cuda::SampleTokens work;
  work.logits = on_gpu.data();
  work.rows = rows;
  work.vocabulary = vocabulary;
  work.parameters = on_rows.as<kernels::cuda::SampleRow>();
  work.out = out.as<kernels::cuda::SampledToken>();
  work.drawn = drawn.data();
  must(sample_tokens(work, kernels::cuda::Start::ordered, stream_.get()));
  wait();
  std::vector<std::uint32_t> expected(offset + rows, untouched);
  for (const std::uint32_t row : {0u, 2u}) {
    const auto first = logits.begin() + row * vocabulary;
    expected[offset + row] = static_cast<std::uint32_t>(std::max_element(first, first + vocabulary) - first);
    EXPECT_EQ(work.out[offset + row].chosen.token, expected[offset + row]);
    EXPECT_EQ(work.out[offset + row].status, kernels::cuda::SampleStatus::drawn);
  }
  EXPECT_EQ(drawn.read(), expected);
  for (std::uint32_t i = 0; i < offset; ++i) EXPECT_EQ(work.out[i].status, kernels::cuda::SampleStatus::skipped);
}

TEST_F(GpuSamplerTest, AdjustmentsBeyondTheRoomAreLeftToTheCaller) {
  RowSampler gpu = must(RowSampler::make(1000, 2, 10));
  Draw draw = with(0.8f, 0, 1, 0);
  for (TokenId i = 0; i < 11; ++i) draw.params.logit_bias.push_back({i, 1.0f});
  EXPECT_FALSE(gpu.rows().add(0, input_of(draw, 0)));
  EXPECT_EQ(gpu.rows().used(), 0u);
  draw.params.logit_bias.resize(10);
  EXPECT_TRUE(gpu.rows().add(0, input_of(draw, 0)));
}

}  // namespace
}  // namespace penstock::worker
