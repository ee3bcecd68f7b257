// Draws a token from each row of logits by the rules of worker/core/sampling: the same order of adjustments, the same
// order of equal logits, and the same token for the same random number, up to the rounding of exponentials. Masses are
// added as integers, so that results depend on a row alone, not on timing. Any thread; queues work on the stream.
#pragma once

#include <cstdint>

#include "common/base/result.hpp"
#include "kernels/cuda/sampler_types.hpp"
#include "kernels/cuda/stream.hpp"

namespace penstock::kernels::cuda {

constexpr std::uint32_t sampler_vocabulary_max = 8 * 48 * 1024;

struct SampleTokens {
  const float* logits = nullptr;  // [rows][vocabulary]
  std::uint32_t rows = 0;
  std::uint32_t vocabulary = 0;
  const SampleRow* parameters = nullptr;  // [rows]
  const LogitAdjustment* adjustments = nullptr;
  SampledToken* out = nullptr;     // [rows and offsets]; may be pinned host memory that the device reaches
  std::uint32_t* drawn = nullptr;  // the tokens alone, in the same places; or null
};

/// Errors: invalid_argument for a vocabulary beyond sampler_vocabulary_max.
Result<void> sample_tokens(const SampleTokens& work, Start start, Stream stream);

}  // namespace penstock::kernels::cuda
