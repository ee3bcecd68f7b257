#include "worker/executor/cuda/sample_rows.hpp"

#include <cmath>
#include <limits>

#include "worker/core/sampling/sampler.hpp"

namespace penstock::worker {

using kernels::cuda::LogitAdjustment;
using kernels::cuda::SampledToken;
using kernels::cuda::SampleMode;
using kernels::cuda::SampleRow;
using kernels::cuda::SampleStatus;

SampleRows::SampleRows(std::uint32_t vocabulary, std::span<SampleRow> rows, std::span<LogitAdjustment> adjustments)
    : rows_(rows), adjustments_(adjustments), entries_(vocabulary), counts_(vocabulary) {}

void SampleRows::move_to(std::span<SampleRow> rows, std::span<LogitAdjustment> adjustments, std::uint32_t offset) {
  rows_ = rows;
  adjustments_ = adjustments;
  result_offset_ = offset;
  used_ = 0;
}

void SampleRows::skip(std::size_t row) {
  rows_[row] = SampleRow();
  rows_[row].result_offset = result_offset_;
}

LogitAdjustment* SampleRows::entry_of(TokenId token) {
  if (entries_[token] == 0) {
    if (used_ == adjustments_.size()) return nullptr;
    adjustments_[used_] = LogitAdjustment{token};
    entries_[token] = static_cast<std::uint32_t>(++used_);
  }
  return &adjustments_[entries_[token] - 1];
}

bool SampleRows::adjust(const SampleInput& input) {
  const protocol::SamplingParams& params = *input.params;
  for (const auto& [token, bias] : params.logit_bias) {
    LogitAdjustment* const entry = entry_of(token);
    if (entry == nullptr) return false;
    entry->bias += bias;
  }
  if (params.repetition_penalty != 1) {
    for (const std::span<const TokenId> tokens : {input.prompt, input.output}) {
      for (const TokenId token : tokens) {
        LogitAdjustment* const entry = entry_of(token);
        if (entry == nullptr) return false;
        entry->repetition = params.repetition_penalty;
      }
    }
  }
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    for (const TokenId token : input.output) {
      LogitAdjustment* const entry = entry_of(token);
      if (entry == nullptr) return false;
      const auto count = static_cast<float>(++counts_[token]);
      entry->subtract = params.presence_penalty + params.frequency_penalty * count;
    }
  }
  for (const TokenId token : input.suppressed) {
    LogitAdjustment* const entry = entry_of(token);
    if (entry == nullptr) return false;
    entry->subtract = std::numeric_limits<float>::infinity();
  }
  return true;
}

bool SampleRows::add(std::size_t row, const SampleInput& input) {
  const protocol::SamplingParams& params = *input.params;
  row_first_ = used_;
  const bool fits = adjust(input);
  for (std::size_t i = row_first_; i < used_; ++i) {
    entries_[adjustments_[i].token] = 0;
    counts_[adjustments_[i].token] = 0;
  }
  if (!fits) {
    used_ = row_first_;
    skip(row);
    return false;
  }
  skip(row);
  SampleRow& out = rows_[row];
  const bool is_greedy = params.temperature < temperature_greedy_below || params.top_k == 1;
  out.mode = is_greedy ? SampleMode::greedy : SampleMode::draw;
  if (!is_greedy) {
    out.scale = 1.0f / params.temperature;
    out.uniform = uniform_of(input);
    out.top_k = params.top_k < entries_.size() ? params.top_k : 0;
    out.top_p = params.top_p;
    if (params.min_p > 0) out.floor_offset = std::log(params.min_p) / out.scale;
  }
  out.adjustments_first = static_cast<std::uint32_t>(row_first_);
  out.adjustments_count = static_cast<std::uint32_t>(used_ - row_first_);
  if (params.logprobs) out.logprobs = *params.logprobs + 1;
  return true;
}

SequenceResult result_of(const SampledToken& sampled, std::optional<std::uint32_t> wanted) {
  SequenceResult result;
  if (sampled.status != SampleStatus::drawn) {
    result.not_finite = true;
    return result;
  }
  result.token = sampled.chosen.token;
  if (wanted) {
    protocol::PositionLogprobs& logprobs = result.logprobs.emplace();
    logprobs.chosen = {sampled.chosen.token, sampled.chosen.logprob};
    logprobs.rank = sampled.rank;
    for (std::uint32_t i = 0; i < sampled.top_count; ++i) {
      logprobs.top.push_back({sampled.top[i].token, sampled.top[i].logprob});
    }
  }
  return result;
}

}  // namespace penstock::worker
