#include "worker/core/sampling/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/base/check.hpp"
#include "common/time/random.hpp"

namespace penstock::worker {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t lanes = 16;  // independent sums, so that the compiler can use vector registers

/// The largest value; `bad` when any value is NaN or infinite (its exponent bits are all ones).
float scan_maximum(std::span<const float> values, bool& bad) {
  std::uint32_t worst[lanes] = {};
  float highest[lanes];
  std::fill_n(highest, lanes, minus_infinity);
  const std::size_t whole = values.size() / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float value = values[i + lane];
      const std::uint32_t exponent = std::bit_cast<std::uint32_t>(value) & 0x7F800000u;
      worst[lane] = worst[lane] > exponent ? worst[lane] : exponent;
      highest[lane] = value > highest[lane] ? value : highest[lane];
    }
  }
  std::uint32_t exponent = *std::max_element(worst, worst + lanes);
  float maximum = *std::max_element(highest, highest + lanes);
  for (std::size_t i = whole; i < values.size(); ++i) {
    exponent = std::max(exponent, std::bit_cast<std::uint32_t>(values[i]) & 0x7F800000u);
    maximum = std::max(maximum, values[i]);
  }
  bad = exponent == 0x7F800000u;
  return maximum;
}

/// e^x for x <= 0, relative error below 2e-7: 2^n times a polynomial of the rest (degree 6, Taylor around 0 on
/// [-ln2/2, ln2/2]). Below -87 the answer is 0.
inline float exp_negative(float x) {
  constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const float clamped = x < -87.0f ? -87.0f : x;
  const auto n = static_cast<std::int32_t>(clamped * log2_e - 0.5f);  // truncation of a negative number rounds up
  const auto whole = static_cast<float>(n);
  const float r = (clamped - whole * ln2_high) - whole * ln2_low;
  const float p =
      1.0f +
      r * (1.0f + r * (0.5f + r * (1.6666667e-1f + r * (4.1666668e-2f + r * (8.3333340e-3f + r * 1.3888889e-3f)))));
  const float power = std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

/// Sum of e^((value - maximum) * scale) over the values that are not below `floor`.
double exp_sum(std::span<const float> values, float maximum, float scale, float floor) {
  double total = 0;
  constexpr std::size_t stripe = 1024;  // floats add up 64 a lane at most, doubles the rest
  for (std::size_t begin = 0; begin < values.size(); begin += stripe) {
    const std::size_t end = std::min(values.size(), begin + stripe);
    const std::size_t whole = begin + (end - begin) / lanes * lanes;
    float sums[lanes] = {};
    for (std::size_t i = begin; i < whole; i += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const float value = values[i + lane];
        sums[lane] += value >= floor ? exp_negative((value - maximum) * scale) : 0.0f;
      }
    }
    for (const float sum : sums) total += sum;
    for (std::size_t i = whole; i < end; ++i) {
      if (values[i] >= floor) total += exp_negative((values[i] - maximum) * scale);
    }
  }
  return total;
}

TokenId first_equal(std::span<const float> values, float wanted) {
  const auto found = std::find(values.begin(), values.end(), wanted);
  return static_cast<TokenId>(found - values.begin());
}

}  // namespace

double uniform_of(const SampleInput& input) {
  const std::uint64_t seed = input.params->seed;
  constexpr std::uint32_t purpose = 0x73616D70;
  const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {input.position, input.choice, 0, purpose});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

Sampler::Sampler(std::uint32_t vocabulary_size) : adjusted_(vocabulary_size), counts_(vocabulary_size) {
  candidates_.reserve(vocabulary_size);
}

SequenceResult Sampler::sample(std::span<const float> logits, const SampleInput& input) {
  PENSTOCK_CHECK(logits.size() == adjusted_.size(), "logits", logits.size(), "vocabulary", adjusted_.size());
  SequenceResult result;
  bool bad = false;
  float maximum = scan_maximum(logits, bad);
  if (bad) {
    result.not_finite = true;
    return result;
  }
  const protocol::SamplingParams& params = *input.params;
  const std::span<const float> values = adjust(logits, input);
  if (values.data() != logits.data()) {
    maximum = scan_maximum(values, bad);  // suppressed ids are minus infinity, so `bad` says nothing here
    if (!std::isfinite(maximum)) {
      result.not_finite = true;
      return result;
    }
  }
  if (params.temperature < temperature_greedy_below || params.top_k == 1) {
    result.token = first_equal(values, maximum);
  } else {
    const float scale = 1.0f / params.temperature;
    const bool truncated = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
    const double uniform = uniform_of(input);
    result.token = truncated ? draw_truncated(values, maximum, scale, params, uniform)
                             : draw_untruncated(values, maximum, scale, uniform);
  }
  if (params.logprobs) result.logprobs = score(logits, *result.token, *params.logprobs);
  return result;
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SampleInput& input) {
  const protocol::SamplingParams& params = *input.params;
  const bool penalties =
      params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (params.logit_bias.empty() && input.suppressed.empty() && !penalties) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [token, bias] : params.logit_bias) adjusted_[token] += bias;
  if (penalties) penalise(input);
  for (const TokenId token : input.suppressed) adjusted_[token] = minus_infinity;
  return adjusted_;
}

void Sampler::penalise(const SampleInput& input) {
  const protocol::SamplingParams& params = *input.params;
  const auto count = [&](TokenId token) {
    if (counts_[token]++ == 0) touched_.push_back(token);
  };
  if (params.repetition_penalty != 1) {
    for (const TokenId token : input.prompt) count(token);
    for (const TokenId token : input.output) count(token);
    for (const TokenId token : touched_) {
      float& logit = adjusted_[token];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      counts_[token] = 0;
    }
    touched_.clear();
  }
  for (const TokenId token : input.output) count(token);
  for (const TokenId token : touched_) {
    adjusted_[token] -= params.presence_penalty + params.frequency_penalty * static_cast<float>(counts_[token]);
    counts_[token] = 0;
  }
  touched_.clear();
}

TokenId Sampler::draw_untruncated(std::span<const float> values, float maximum, float scale, double uniform) {
  // Two levels: find the stripe by its sum, then walk it.
  constexpr std::size_t stripe = 1024;
  const double total = exp_sum(values, maximum, scale, minus_infinity);
  double rest = uniform * total;
  std::size_t begin = 0;
  for (; begin + stripe < values.size(); begin += stripe) {
    const double sum = exp_sum(values.subspan(begin, stripe), maximum, scale, minus_infinity);
    if (rest < sum) break;
    rest -= sum;
  }
  TokenId last = first_equal(values, maximum);  // rounding may leave a rest behind the last token
  for (std::size_t i = begin; i < values.size(); ++i) {
    const float weight = exp_negative((values[i] - maximum) * scale);
    if (weight == 0) continue;
    last = static_cast<TokenId>(i);
    if (rest < weight) return last;
    rest -= weight;
  }
  return last;
}

void Sampler::collect_above(std::span<const float> values, float floor) {
  candidates_.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= floor) candidates_.push_back({values[i], static_cast<TokenId>(i)});
  }
}

void Sampler::select_top(std::span<const float> values, float maximum, std::size_t count) {
  count = std::min(count, values.size());
  // Most rows have their best tokens close to the maximum, so that a narrow window holds them.
  for (float window = 4; window <= 64; window *= 4) {
    collect_above(values, maximum - window);
    if (candidates_.size() >= count) break;
  }
  if (candidates_.size() < count) collect_above(values, minus_infinity);
  const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  if (middle != candidates_.end()) std::nth_element(candidates_.begin(), middle, candidates_.end(), before);
  candidates_.resize(count);
  std::sort(candidates_.begin(), candidates_.end(), before);
}

TokenId Sampler::draw_truncated(std::span<const float> values, float maximum, float scale,
                                const protocol::SamplingParams& params, double uniform) {
  const float floor = params.min_p > 0 ? maximum + std::log(params.min_p) / scale : minus_infinity;
  const auto weight = [&](const Candidate& c) {
    return static_cast<double>(exp_negative((c.value - maximum) * scale));
  };
  double mass = 0;
  bool sorted = false;
  if (params.top_k > 0 && params.top_k < values.size()) {
    select_top(values, maximum, params.top_k);
    while (candidates_.size() > 1 && candidates_.back().value < floor) candidates_.pop_back();
    sorted = true;
  }
  if (sorted) {
    for (const Candidate& c : candidates_) mass += weight(c);
  } else {
    mass = exp_sum(values, maximum, scale, floor);
    // Widen a window below the maximum until it holds the mass that top-p keeps; only that is sorted.
    for (float window = 3; params.top_p < 1; window *= 2) {
      collect_above(values, std::max(floor, maximum - window / scale));
      double inside = 0;
      for (const Candidate& c : candidates_) inside += weight(c);
      if (inside >= params.top_p * mass || window > 90) break;
    }
    if (params.top_p == 1) collect_above(values, floor);
    if (params.top_p < 1) std::sort(candidates_.begin(), candidates_.end(), before);
  }
  if (params.top_p < 1) {
    const double wanted = params.top_p * mass;
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && kept < wanted) kept += weight(candidates_[count++]);
    candidates_.resize(std::max<std::size_t>(count, 1));
    mass = kept;
  }
  double rest = uniform * mass;
  for (const Candidate& c : candidates_) {
    if (rest < weight(c)) return c.id;
    rest -= weight(c);
  }
  return candidates_.front().id;  // rounding left a rest
}

protocol::PositionLogprobs Sampler::score(std::span<const float> logits, TokenId chosen, std::uint32_t top_count) {
  PENSTOCK_CHECK(chosen < logits.size() && logits.size() == adjusted_.size(), "token", chosen);
  bool bad = false;
  const float maximum = scan_maximum(logits, bad);
  const float log_sum = static_cast<float>(std::log(exp_sum(logits, maximum, 1, minus_infinity)));
  const auto logprob = [&](TokenId token) { return (logits[token] - maximum) - log_sum; };
  protocol::PositionLogprobs out;
  out.chosen = {chosen, logprob(chosen)};
  std::uint32_t higher = 0;
  const float own = logits[chosen];
  for (const float value : logits) higher += value > own ? 1 : 0;
  for (std::size_t i = 0; i < chosen; ++i) higher += logits[i] == own ? 1 : 0;
  out.rank = higher + 1;
  if (top_count > 0) {
    select_top(logits, maximum, top_count);
    for (const Candidate& c : candidates_) out.top.push_back({c.id, logprob(c.id)});
  }
  return out;
}

}  // namespace penstock::worker
