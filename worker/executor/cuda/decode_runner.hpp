// Starts decode steps: as graphs, one for each number of rows and of parts that attention cuts a sequence into, or
// kernel by kernel, which gives the same bits. Graphs of up to 128 rows are recorded at start, those of more when they
// are needed a second time, and all of them only while they fit a budget. Thread: the engine's.
#pragma once

#include <cstdint>
#include <utility>
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
  /// Of GPU memory that graphs take, as far as the driver shows it.
  static constexpr std::uint64_t graph_bytes_max = std::uint64_t{512} << 20;

  /// Records the usual graphs. Errors: too little GPU memory; what the kernels refuse.
  static Result<DecodeRunner> make(const DecodeModel& model, const DecodeLimits& limits, CudaLaunch launch,
                                   kernels::cuda::Stream stream);

  DecodeStep& step() { return step_; }
  /// Queues the step whose inputs are in place in its turn's memory, for decode_rows(sequences) rows, the longest
  /// sequence of which has `longest` tokens.
  Result<void> start(Turn turn, std::uint32_t sequences, std::uint32_t longest, kernels::cuda::Stream stream);

  std::size_t graphs() const { return graphs_.size(); }
  std::uint64_t graph_bytes() const { return graph_bytes_; }

 private:
  struct Size {
    std::uint32_t rows, splits;
    bool operator==(const Size&) const = default;
  };
  struct Recorded {
    Size size;
    kernels::cuda::Graph graph;
  };
  Size size_of(std::uint32_t sequences, std::uint32_t longest) const;
  Result<void> record_usual(const DecodeLimits& limits, kernels::cuda::Stream stream);
  Result<void> record(Size size, kernels::cuda::Stream stream);
  Result<const Recorded*> find(Size size, kernels::cuda::Stream stream);

  DecodeStep step_;
  CudaLaunch launch_ = CudaLaunch::graph;
  std::uint32_t kv_heads_ = 0, multiprocessors_ = 0;
  std::vector<Recorded> graphs_;
  std::vector<Size> started_;  // kernel by kernel, hence with kernels that are loaded
  std::uint64_t graph_bytes_ = 0;
};

}  // namespace penstock::worker
