#include "worker/model/model_spec.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

namespace penstock::worker {
namespace {

struct Bound {
  const char* name;
  std::uint64_t value;
  std::uint64_t low;
  std::uint64_t high;
};

Error refuse(const std::string& why) {
  return make_error(ErrorCode::unsupported, "model: " + why);
}

Result<void> validate_rope(const RopeSpec& rope, std::uint32_t head_dim) {
  if (!std::isfinite(rope.theta) || rope.theta <= 1) return refuse("rope theta " + std::to_string(rope.theta));
  if (rope.rotary_dim == 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    return refuse("rope over " + std::to_string(rope.rotary_dim) + " of " + std::to_string(head_dim) + " values");
  }
  if (!std::isfinite(rope.factor) || rope.factor < 1) return refuse("rope factor " + std::to_string(rope.factor));
  const bool needs_context = rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::llama3;
  if (needs_context && rope.original_context == 0) return refuse("rope scaling without its original context");
  if (rope.scaling == RopeScaling::llama3 &&
      !(rope.low_frequency_factor > 0 && std::isfinite(rope.high_frequency_factor) &&
        rope.high_frequency_factor > rope.low_frequency_factor)) {
    return refuse("rope scaling llama3 with frequency factors out of order");
  }
  if (rope.scaling == RopeScaling::yarn &&
      !(rope.beta_slow > 0 && std::isfinite(rope.beta_fast) && rope.beta_fast > rope.beta_slow &&
        rope.attention_factor >= 0 && std::isfinite(rope.attention_factor))) {
    return refuse("rope scaling yarn with betas or attention factor out of range");
  }
  if (!rope.frequency_divisors.empty()) {
    if (rope.frequency_divisors.size() != rope.rotary_dim / 2) return refuse("rope_freqs.weight of the wrong length");
    for (const float divisor : rope.frequency_divisors) {
      if (!std::isfinite(divisor) || divisor <= 0)
        return refuse("rope_freqs.weight holds a value that is not positive");
    }
  }
  return {};
}

Result<void> check_bounds(std::span<const Bound> bounds) {
  for (const Bound& bound : bounds) {
    if (bound.value < bound.low || bound.value > bound.high) {
      return refuse(std::string(bound.name) + " is " + std::to_string(bound.value) + ", outside " +
                    std::to_string(bound.low) + " to " + std::to_string(bound.high));
    }
  }
  return {};
}

/// Of every dense layer or of every expert.
struct Ffn {
  const char* name;
  std::uint32_t size;
};
Ffn ffn_of(const ModelSpec& spec) {
  return spec.experts ? Ffn{"FFN size of an expert", spec.experts->ffn} : Ffn{"FFN size", spec.ffn};
}

/// 1 / theta^(2i / d), before any scaling.
std::vector<double> base_frequencies(const RopeSpec& spec) {
  std::vector<double> frequencies(spec.rotary_dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(spec.theta, -2.0 * static_cast<double>(i) / spec.rotary_dim);
  }
  return frequencies;
}

constexpr double two_pi = 6.283185307179586476925;

/// Long waves are stretched by `factor`, short ones kept, and those between are blended by wavelength.
double scale_llama3(const RopeSpec& spec, double frequency) {
  const double wavelength = two_pi / frequency;
  const double turns = spec.original_context / wavelength;  // within the original context
  if (turns < spec.low_frequency_factor) return frequency / spec.factor;
  if (turns > spec.high_frequency_factor) return frequency;
  const double keep = (turns - spec.low_frequency_factor) / (spec.high_frequency_factor - spec.low_frequency_factor);
  return (1 - keep) * frequency / spec.factor + keep * frequency;
}

/// The pair index whose angle makes `turns` rotations over the original context.
double yarn_index(const RopeSpec& spec, double turns) {
  return spec.rotary_dim * std::log(spec.original_context / (turns * two_pi)) / (2 * std::log(spec.theta));
}

double scale_yarn(const RopeSpec& spec, double frequency, std::size_t index) {
  const double first = yarn_index(spec, spec.beta_fast), last = yarn_index(spec, spec.beta_slow);
  const double low = std::max(0.0, spec.truncates ? std::floor(first) : first);
  double high = std::min(spec.rotary_dim - 1.0, spec.truncates ? std::ceil(last) : last);
  if (high <= low) high = low + 0.001;
  const double stretch = std::clamp((static_cast<double>(index) - low) / (high - low), 0.0, 1.0);
  return stretch * frequency / spec.factor + (1 - stretch) * frequency;
}

double scaled_frequency(const RopeSpec& spec, double frequency, std::size_t index) {
  if (!spec.frequency_divisors.empty()) frequency /= static_cast<double>(spec.frequency_divisors[index]);
  switch (spec.scaling) {
    case RopeScaling::none:
      return frequency;
    case RopeScaling::linear:
      return frequency / spec.factor;
    case RopeScaling::llama3:
      return scale_llama3(spec, frequency);
    case RopeScaling::yarn:
      return scale_yarn(spec, frequency, index);
  }
  return frequency;
}

}  // namespace

Result<void> validate(const ModelSpec& spec) {
  const Ffn ffn = ffn_of(spec);
  const Bound bounds[] = {{"layers", spec.layers, 1, 1024},
                          {"hidden size", spec.hidden, 8, 1u << 17},
                          {"attention heads", spec.heads, 1, 4096},
                          {"key/value heads", spec.kv_heads, 1, 4096},
                          {"head size", spec.head_dim, 8, 256},
                          {ffn.name, ffn.size, 8, 1u << 19},
                          {"vocabulary", spec.vocabulary, 2, 1u << 21},
                          {"context", spec.context_tokens, 1, 1u << 24}};
  PENSTOCK_TRY_VOID(check_bounds(bounds));
  if (spec.experts) {
    const std::uint32_t count = spec.experts->count;
    const Bound of_experts[] = {{"experts", count, 1, 1024},
                                {"experts of a token", spec.experts->per_token, 1, std::min(count, 64u)},
                                {"FFN size beside experts", spec.ffn, 0, 0}};
    PENSTOCK_TRY_VOID(check_bounds(of_experts));
  }
  if (!spec.windows.empty() && spec.windows.size() != spec.layers) {
    return refuse("attention windows of " + std::to_string(spec.windows.size()) + " layers");
  }
  if (spec.heads % spec.kv_heads != 0) {
    return refuse(std::to_string(spec.heads) + " attention heads cannot share " + std::to_string(spec.kv_heads) +
                  " key/value heads");
  }
  if (spec.head_dim % 8 != 0) return refuse("head size " + std::to_string(spec.head_dim) + " is no multiple of 8");
  if (ffn.size % 8 != 0) {
    return refuse(std::string(ffn.name) + " " + std::to_string(ffn.size) + " is no multiple of 8");
  }
  if (!std::isfinite(spec.norm_epsilon) || spec.norm_epsilon <= 0 || spec.norm_epsilon > 1) {
    return refuse("norm epsilon is out of range");
  }
  for (const TokenId token : spec.eos_tokens) {
    if (token >= spec.vocabulary) return refuse("end token " + std::to_string(token) + " is outside the vocabulary");
  }
  return validate_rope(spec.rope, spec.head_dim);
}

Result<void> validate_tensor_parallel(const ModelSpec& spec, std::uint32_t ranks) {
  if (ranks == 0 || ranks > 64) return refuse(std::to_string(ranks) + " tensor-parallel ranks; 1 to 64 are possible");
  const Ffn ffn = ffn_of(spec);
  const Bound counts[] = {{"attention heads", spec.heads, 0, 0},
                          {"key/value heads", spec.kv_heads, 0, 0},
                          {"hidden size", spec.hidden, 0, 0},
                          {ffn.name, ffn.size, 0, 0}};
  for (const Bound& count : counts) {
    if (count.value % ranks != 0) {
      return refuse(std::string(count.name) + " " + std::to_string(count.value) + " cannot be divided among " +
                    std::to_string(ranks) + " tensor-parallel ranks");
    }
  }
  if (ffn.size / ranks % 8 != 0) {
    return refuse(std::string(ffn.name) + " " + std::to_string(ffn.size) + " gives " + std::to_string(ranks) +
                  " tensor-parallel ranks shares that are no multiple of 8");
  }
  return {};
}

RopeTables make_rope_tables(const RopeSpec& spec, std::uint32_t positions) {
  std::vector<double> frequencies = base_frequencies(spec);
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = scaled_frequency(spec, frequencies[i], i);
  double magnitude = 1;
  if (spec.scaling == RopeScaling::yarn) {
    magnitude = spec.attention_factor > 0 ? spec.attention_factor : 1 + 0.1 * std::log(spec.factor);
  }
  RopeTables tables;
  tables.cos.reserve(std::size_t{positions} * frequencies.size());
  tables.sin.reserve(std::size_t{positions} * frequencies.size());
  for (std::uint32_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      tables.cos.push_back(static_cast<float>(magnitude * std::cos(position * frequency)));
      tables.sin.push_back(static_cast<float>(magnitude * std::sin(position * frequency)));
    }
  }
  return tables;
}

}  // namespace penstock::worker
