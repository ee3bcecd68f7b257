#include <cmath>

#include "worker/core/sampling/sampler.hpp"

namespace penstock::worker {

namespace {

Error refuse(const char* field, const std::string& rule) {
  return make_error(ErrorCode::invalid_argument, std::string(field) + " must be " + rule);
}

bool in_range(float value, float low, float high) {
  return std::isfinite(value) && value >= low && value <= high;
}

}  // namespace

Result<void> validate(const protocol::SamplingParams& params, const SamplingLimits& limits) {
  if (!in_range(params.temperature, 0, 100)) return refuse("temperature", "between 0 and 100");
  if (!in_range(params.top_p, 0, 1) || params.top_p == 0) return refuse("top_p", "above 0 and at most 1");
  if (!in_range(params.min_p, 0, 1)) return refuse("min_p", "between 0 and 1");
  if (!in_range(params.repetition_penalty, 0.01f, 100)) return refuse("repetition_penalty", "between 0.01 and 100");
  if (!in_range(params.presence_penalty, -2, 2)) return refuse("presence_penalty", "between -2 and 2");
  if (!in_range(params.frequency_penalty, -2, 2)) return refuse("frequency_penalty", "between -2 and 2");
  const std::string vocabulary = std::to_string(limits.vocabulary_size);
  if (params.logit_bias.size() > limits.logit_bias_max) {
    return refuse("logit_bias", "at most " + std::to_string(limits.logit_bias_max) + " entries");
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token >= limits.vocabulary_size) return refuse("logit_bias", "of token ids below " + vocabulary);
    if (!in_range(bias, -1000, 1000)) return refuse("logit_bias", "of values between -1000 and 1000");
  }
  if (params.stop_token_ids.size() > limits.stop_ids_max) {
    return refuse("stop_token_ids", "at most " + std::to_string(limits.stop_ids_max) + " ids");
  }
  for (const TokenId token : params.stop_token_ids) {
    if (token >= limits.vocabulary_size) return refuse("stop_token_ids", "token ids below " + vocabulary);
  }
  if (params.tokens_min > params.tokens_max) return refuse("min_tokens", "at most max_tokens");
  const std::string logprobs_rule = "at most " + std::to_string(limits.logprobs_max);
  if (params.logprobs.value_or(0) > limits.logprobs_max) return refuse("logprobs", logprobs_rule);
  if (params.prompt_logprobs.value_or(0) > limits.logprobs_max) return refuse("prompt_logprobs", logprobs_rule);
  return {};
}

}  // namespace penstock::worker
