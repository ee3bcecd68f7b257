// A step's sampling parameters as the GPU reads them, and its answers as the engine reads them. Thread: the engine's.
// Bounds: rows and adjustments as given at construction; a row whose adjustments do not fit is left to the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/sampler_types.hpp"
#include "worker/engine/executor.hpp"

namespace penstock::worker {

class SampleRows {
 public:
  /// Both spans must outlive this; they are memory that the device copies from.
  SampleRows(std::uint32_t vocabulary, std::span<kernels::cuda::SampleRow> rows,
             std::span<kernels::cuda::LogitAdjustment> adjustments);

  /// Forgets all adjustments.
  void clear() { used_ = 0; }
  /// Goes on in other memory, forgetting all adjustments; results go `offset` behind their rows.
  void move_to(std::span<kernels::cuda::SampleRow> rows, std::span<kernels::cuda::LogitAdjustment> adjustments,
               std::uint32_t offset);
  void skip(std::size_t row);
  /// False, and the row is skipped, if there is no room for its adjustments.
  bool add(std::size_t row, const SampleInput& input);
  /// Adjustments in use.
  std::size_t used() const { return used_; }

 private:
  bool adjust(const SampleInput& input);
  kernels::cuda::LogitAdjustment* entry_of(TokenId token);

  std::span<kernels::cuda::SampleRow> rows_;
  std::span<kernels::cuda::LogitAdjustment> adjustments_;
  std::vector<std::uint32_t> entries_;  // by token: 1 + its entry of this row; zero between calls
  std::vector<std::uint32_t> counts_;   // by token: occurrences in the output; zero between calls
  std::size_t used_ = 0, row_first_ = 0;
  std::uint32_t result_offset_ = 0;
};

/// What a drawn row means for its request, which wants log-probabilities or not.
SequenceResult result_of(const kernels::cuda::SampledToken& sampled, std::optional<std::uint32_t> logprobs);

}  // namespace penstock::worker
