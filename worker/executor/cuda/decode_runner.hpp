// Starts decode steps: as graphs recorded at start, one for each batch size and each number of parts that attention
// cuts a sequence into, or kernel by kernel, which gives the same bits. Thread: the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.hpp"
#include "kernels/cuda/device_buffer.hpp"
#include "worker/executor/cuda/decode_step.hpp"

namespace penstock::worker {

/// How the kernels of a decode step are started.
enum class CudaLaunch : std::uint8_t {
  graph,    // whole steps, recorded once; kernels fetch weights while the one before ends
  direct,   // the same kernels, one by one
  ordered,  // one by one, each when the one before has ended
};

class DecodeRunner {
 public:
  /// Records all graphs. Errors: too little GPU memory; what the kernels refuse.
  static Result<DecodeRunner> make(const DecodeModel& model, const DecodeLimits& limits, CudaLaunch launch,
                                   std::uint32_t multiprocessors, kernels::cuda::Stream stream);

  DecodeStep& step() { return step_; }
  /// The rows that a step of `count` sequences is run with.
  static std::uint32_t padded(std::uint32_t count);
  /// Queues the step whose inputs are in place, for `rows` = padded(...) rows, the longest sequence of which has
  /// `longest` tokens.
  Result<void> start(std::uint32_t rows, std::uint32_t longest, kernels::cuda::Stream stream);

  std::size_t graphs() const { return graphs_.size(); }

 private:
  struct Recorded {
    std::uint32_t rows, splits;
    kernels::cuda::Graph graph;
  };
  std::uint32_t splits_for(std::uint32_t rows, std::uint32_t longest) const;
  Result<void> record(std::uint32_t rows, const DecodeLimits& limits, kernels::cuda::Stream stream);

  DecodeStep step_;
  CudaLaunch launch_ = CudaLaunch::graph;
  std::uint32_t kv_heads_ = 0, multiprocessors_ = 0;
  std::vector<Recorded> graphs_;
};

}  // namespace penstock::worker
