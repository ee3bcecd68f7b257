// Draws one token from one row of logits, and scores tokens by the raw distribution. Pure: the same row, parameters,
// choice and position give the same token, whatever else is in the batch.
// Owner: an executor; one Sampler a thread. Bounds: scratch of vocabulary size, allocated at construction.
//
// Order: logit bias, suppressed ids, repetition penalty (prompt and output), presence and frequency penalties (output),
// temperature, top-k, min-p, top-p, draw. Equal logits are ordered by id, lowest first: greedy takes the lowest id,
// top-k keeps exactly k, top-p keeps the shortest run of that order whose mass reaches p. Truncation never leaves
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "worker/engine/executor.hpp"

namespace penstock::worker {

/// What a worker accepts. The engine refuses anything else before it enters a batch.
struct SamplingLimits {
  std::uint32_t vocabulary_size = 0;
  std::size_t logit_bias_max = 1024;
  std::size_t stop_ids_max = 256;
  std::uint32_t logprobs_max = 20;
};

/// An error names the field and the limit.
Result<void> validate(const protocol::SamplingParams& params, const SamplingLimits& limits);

/// Below this temperature a draw would only overflow; it means greedy.
constexpr float temperature_greedy_below = 1e-5f;

/// The random number of a draw, in [0, 1). Depends on nothing but seed, choice and position: a migrated request draws
/// the same numbers elsewhere.
double uniform_of(const SampleInput& input);

class Sampler {
 public:
  explicit Sampler(std::uint32_t vocabulary_size);

  /// `logits` has vocabulary_size entries. Fills token and logprobs, or not_finite when the row holds NaN or infinity
  /// (or when nothing may be drawn).
  SequenceResult sample(std::span<const float> logits, const SampleInput& input);

  /// Logprob and rank of `chosen` under the raw distribution and its `top_count` most likely tokens.
  protocol::PositionLogprobs score(std::span<const float> logits, TokenId chosen, std::uint32_t top_count);

 private:
  struct Candidate {
    float value;
    TokenId id;
  };
  static bool before(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }

  std::span<const float> adjust(std::span<const float> logits, const SampleInput& input);
  void penalise(const SampleInput& input);
  TokenId draw_untruncated(std::span<const float> values, float maximum, float scale, double uniform);
  TokenId draw_truncated(std::span<const float> values, float maximum, float scale,
                         const protocol::SamplingParams& params, double uniform);
  void collect_above(std::span<const float> values, float floor);
  void select_top(std::span<const float> values, float maximum, std::size_t count);

  std::vector<float> adjusted_;
  std::vector<std::uint32_t> counts_;  // occurrences by id; zero between calls
  std::vector<TokenId> touched_;
  std::vector<Candidate> candidates_;
};

}  // namespace penstock::worker
