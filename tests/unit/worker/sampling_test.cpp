#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "common/time/random.hpp"
#include "worker/core/sampling/sampler.hpp"

namespace penstock::worker {
namespace {

using protocol::SamplingParams;

std::vector<float> random_logits(std::uint32_t count, std::uint64_t seed, double spread = 6) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>((random.uniform() - 0.5) * 2 * spread);
  return logits;
}

SequenceResult draw(Sampler& sampler, const std::vector<float>& logits, const SamplingParams& params,
                    std::uint32_t position = 0, std::uint32_t choice = 0) {
  SampleInput input;
  input.params = &params;
  input.choice = choice;
  input.position = position;
  return sampler.sample(logits, input);
}

// What the header says, in doubles and with a full sort.
std::map<TokenId, double> exact_distribution(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && params.top_k < order.size()) order.resize(params.top_k);
  const double best = logits[order.front()];
  const auto weight = [&](TokenId id) { return std::exp((logits[id] - best) / params.temperature); };
  if (params.min_p > 0) std::erase_if(order, [&](TokenId id) { return weight(id) < params.min_p * (1 - 1e-7); });
  double mass = 0;
  for (const TokenId id : order) mass += weight(id);
  double kept = 0;
  std::size_t count = 0;
  while (count < order.size() && kept < params.top_p * mass * (1 - 1e-12)) kept += weight(order[count++]);
  std::map<TokenId, double> out;
  for (std::size_t i = 0; i < count; ++i) out[order[i]] = weight(order[i]) / kept;
  return out;
}

// Wilson and Hilferty's normal approximation; 5 standard deviations never happen by chance, and the seed is fixed.
void expect_distribution(const std::vector<float>& logits, SamplingParams params) {
  Sampler sampler(static_cast<std::uint32_t>(logits.size()));
  const auto expected = exact_distribution(logits, params);
  constexpr std::uint32_t draws = 10000;
  std::map<TokenId, std::uint32_t> seen;
  for (std::uint32_t i = 0; i < draws; ++i) ++seen[*draw(sampler, logits, params, i).token];
  for (const auto& [token, count] : seen) {
    ASSERT_TRUE(expected.contains(token)) << "token " << token << " must never be drawn, was " << count << " times";
  }
  double chi_square = 0, rare_expected = 0, rare_seen = 0;
  int cells = 0;
  for (const auto& [token, probability] : expected) {
    const double wanted = probability * draws;
    if (wanted < 8) {
      rare_expected += wanted;
      rare_seen += seen[token];
      continue;
    }
    chi_square += (seen[token] - wanted) * (seen[token] - wanted) / wanted;
    ++cells;
  }
  if (rare_expected >= 8) {
    chi_square += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  const double z = (std::cbrt(chi_square / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
  EXPECT_LT(z, 5) << "chi-square " << chi_square << " with " << freedom << " degrees of freedom";
}

TEST(Sampler, DrawsThePlainDistribution) {
  expect_distribution(random_logits(50, 1, 2), {.temperature = 1.0f, .seed = 11});
  expect_distribution(random_logits(5000, 2, 4), {.temperature = 0.6f, .seed = 12});
}

TEST(Sampler, DrawsTheTruncatedDistributions) {
  const auto logits = random_logits(400, 3, 4);
  expect_distribution(logits, {.temperature = 1.0f, .top_k = 7, .seed = 1});
  expect_distribution(logits, {.temperature = 1.3f, .top_p = 0.6f, .seed = 2});
  expect_distribution(logits, {.temperature = 0.8f, .min_p = 0.1f, .seed = 3});
  expect_distribution(logits, {.temperature = 0.9f, .top_k = 60, .top_p = 0.8f, .min_p = 0.02f, .seed = 4});
  expect_distribution(logits, {.temperature = 2.0f, .top_k = 100000, .top_p = 0.97f, .seed = 5});
  expect_distribution(random_logits(2000, 9, 0.01), {.temperature = 1.0f, .top_p = 0.05f, .seed = 6});
}

TEST(Sampler, TruncationCutsTiesByLowestId) {
  std::vector<float> logits(40, 1.0f);
  logits[30] = 2.0f;
  expect_distribution(logits, {.temperature = 1.0f, .top_k = 5, .seed = 1});
  expect_distribution(logits, {.temperature = 1.0f, .top_p = 0.5f, .seed = 2});
  expect_distribution(logits, {.temperature = 1.0f, .min_p = 0.3f, .seed = 3});
  expect_distribution(std::vector<float>(40, 0.0f), {.temperature = 1.0f, .top_k = 4, .top_p = 0.5f, .seed = 4});
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualLogits) {
  std::vector<float> logits(100, -1.0f);
  logits[40] = logits[60] = 3.0f;
  Sampler sampler(100);
  EXPECT_EQ(draw(sampler, logits, {.temperature = 0}).token, 40u);
  EXPECT_EQ(draw(sampler, logits, {.temperature = 1e-20f}).token, 40u);
  EXPECT_EQ(draw(sampler, logits, {.temperature = 1, .top_k = 1}).token, 40u);
}

TEST(Sampler, TheSameSeedChoiceAndPositionDrawTheSameToken) {
  const auto logits = random_logits(1000, 4, 1);
  Sampler first(1000), second(1000);
  const SamplingParams params{.temperature = 1.0f, .seed = 77};
  int different_choice = 0, different_position = 0;
  for (std::uint32_t position = 0; position < 50; ++position) {
    const auto token = draw(first, logits, params, position, 0).token;
    draw(second, logits, params, position + 1, 5);  // what else the sampler does must not matter
    EXPECT_EQ(token, draw(second, logits, params, position, 0).token);
    different_choice += token != draw(second, logits, params, position, 1).token;
    different_position += token != draw(second, logits, params, position + 1, 0).token;
  }
  EXPECT_GT(different_choice, 40);
  EXPECT_GT(different_position, 40);
}

TEST(Sampler, NotFiniteLogitsGiveNoToken) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t place : {0u, 500u, 1002u}) {
      auto logits = random_logits(1003, 5);
      logits[place] = bad;
      Sampler sampler(1003);
      const auto result = draw(sampler, logits, {.temperature = 0});
      EXPECT_TRUE(result.not_finite);
      EXPECT_FALSE(result.token.has_value());
    }
  }
}

TEST(Sampler, SuppressedIdsAreNeverDrawn) {
  std::vector<float> logits{5, 4, 3};
  const std::vector<TokenId> suppressed{0};
  const SamplingParams params{.temperature = 0, .logprobs = 1};
  Sampler sampler(3);
  SampleInput input;
  input.params = &params;
  input.suppressed = suppressed;
  const auto result = sampler.sample(logits, input);
  EXPECT_EQ(result.token, 1u);
  EXPECT_EQ(result.logprobs->rank, 2u);  // of the raw distribution
  EXPECT_EQ(result.logprobs->top.at(0).token, 0u);
  const std::vector<TokenId> all{0, 1, 2};
  input.suppressed = all;
  EXPECT_TRUE(sampler.sample(logits, input).not_finite);
}

TEST(Sampler, PenaltiesCountPromptAndOutputAsDocumented) {
  const std::vector<TokenId> prompt{0, 0}, output{1, 1};
  const auto pick = [&](SamplingParams params, std::vector<float> logits) {
    params.temperature = 0;
    Sampler sampler(3);
    SampleInput input;
    input.params = &params;
    input.prompt = prompt;
    input.output = output;
    input.position = 2;
    const auto token = *sampler.sample(logits, input).token;
    EXPECT_EQ(token, *sampler.sample(logits, input).token) << "the second call must not see counts of the first";
    return token;
  };
  EXPECT_EQ(pick({}, {3, 2, 1}), 0u);
  EXPECT_EQ(pick({.repetition_penalty = 4}, {3, 2, 1}), 2u);       // 0.75, 0.5, 1
  EXPECT_EQ(pick({.repetition_penalty = 4}, {-1, -1, -3}), 2u);    // -4, -4, -3
  EXPECT_EQ(pick({.presence_penalty = 2}, {3, 4, 2.5}), 0u);       // the prompt does not count: 3, 2, 2.5
  EXPECT_EQ(pick({.frequency_penalty = 1.5f}, {1.5f, 4, 0}), 0u);  // twice: 1.5, 1, 0
  EXPECT_EQ(pick({.logit_bias = {{2, 100}}}, {3, 2, 1}), 2u);
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  const auto logits = random_logits(3001, 8);
  Sampler sampler(3001);
  const SamplingParams params{.temperature = 0.2f, .logit_bias = {{17, 50}}, .logprobs = 5};
  const auto result = draw(sampler, logits, params);
  ASSERT_EQ(result.token, 17u);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto higher = std::count_if(logits.begin(), logits.end(), [&](float l) { return l > logits[17]; });
  EXPECT_EQ(result.logprobs->rank, higher + 1);
  EXPECT_NEAR(result.logprobs->chosen.logprob, logits[17] - std::log(sum), 2e-6);
  ASSERT_EQ(result.logprobs->top.size(), 5u);
  EXPECT_EQ(result.logprobs->top[0].token, std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (std::size_t i = 0; i < 5; ++i) {
    const auto [token, logprob] = result.logprobs->top[i];
    EXPECT_NEAR(logprob, logits[token] - std::log(sum), 2e-6);
    if (i > 0) {
      EXPECT_LE(logprob, result.logprobs->top[i - 1].logprob);
    }
  }
}

TEST(ValidateSampling, NamesTheFieldThatIsWrong) {
  const SamplingLimits limits{.vocabulary_size = 100};
  const SamplingParams good{.tokens_max = 4};
  EXPECT_TRUE(validate(good, limits));
  const auto expect_refused = [&](auto change, const char* field) {
    SamplingParams params = good;
    change(params);
    const auto result = validate(params, limits);
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().message, testing::HasSubstr(field));
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {nan, -1.0f, 1e30f}) {
    expect_refused([&](auto& p) { p.temperature = value; }, "temperature");
    expect_refused([&](auto& p) { p.min_p = value; }, "min_p");
    expect_refused([&](auto& p) { p.repetition_penalty = value; }, "repetition_penalty");
  }
  for (const float value : {nan, 0.0f, 1.001f}) expect_refused([&](auto& p) { p.top_p = value; }, "top_p");
  for (const float value : {nan, -3.0f, 2.1f}) {
    expect_refused([&](auto& p) { p.presence_penalty = value; }, "presence_penalty");
    expect_refused([&](auto& p) { p.frequency_penalty = value; }, "frequency_penalty");
  }
  expect_refused([](auto& p) { p.logit_bias = {{100, 1}}; }, "logit_bias");
  expect_refused([&](auto& p) { p.logit_bias = {{1, nan}}; }, "logit_bias");
  expect_refused([](auto& p) { p.logit_bias.resize(1025); }, "logit_bias");
  expect_refused([](auto& p) { p.stop_token_ids = {100}; }, "stop_token_ids");
  expect_refused([](auto& p) { p.tokens_min = 5; }, "min_tokens");
  expect_refused([](auto& p) { p.logprobs = 21; }, "logprobs");
  expect_refused([](auto& p) { p.prompt_logprobs = 21; }, "prompt_logprobs");
}

}  // namespace
}  // namespace penstock::worker
