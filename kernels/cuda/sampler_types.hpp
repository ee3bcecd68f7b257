// What goes into the sampler and comes out of it, as the device reads and writes it. Plain values; no header of the
// library, so that device code includes it too.
#pragma once

#include <cstdint>
#include <limits>

namespace penstock::kernels::cuda {

constexpr std::uint32_t sampler_top_max = 20;
/// A token id with this bit is a place in SampleTokens::drawn, where the id is.
constexpr std::uint32_t drawn_bit = 1u << 31;

/// What happens to one token's logit, in this order: + bias; / repetition if positive, else * repetition; - subtract
/// (infinity: may not be drawn). At most one entry a token and row.
struct LogitAdjustment {
  std::uint32_t token = 0;
  float bias = 0;
  float repetition = 1;
  float subtract = 0;
};

enum class SampleMode : std::uint32_t { skip, greedy, draw };

/// One row's parameters.
struct SampleRow {
  double uniform = 0;  // the random number, in [0, 1)
  SampleMode mode = SampleMode::skip;
  float scale = 1;                                               // 1 / temperature
  float top_p = 1;                                               // (0, 1]; 1: off
  float floor_offset = -std::numeric_limits<float>::infinity();  // log(min_p) / scale, added to the largest logit
  std::uint32_t top_k = 0;                                       // below the vocabulary's size; 0: off
  std::uint32_t adjustments_first = 0, adjustments_count = 0;    // in SampleTokens::adjustments
  std::uint32_t logprobs = 0;                                    // 0: none; else the alternatives that are wanted, + 1
  std::uint32_t result_offset = 0;                               // from the row to its place in SampleTokens::out
};

enum class SampleStatus : std::uint32_t { skipped, drawn, not_finite };

struct ScoredToken {
  std::uint32_t token;
  float logprob;  // of the row as it came, without adjustments and temperature
};
struct SampledToken {
  SampleStatus status;
  std::uint32_t rank;  // this and what follows only if logprobs were wanted
  ScoredToken chosen;  // its token always
  std::uint32_t top_count;
  ScoredToken top[sampler_top_max];
};

}  // namespace penstock::kernels::cuda
