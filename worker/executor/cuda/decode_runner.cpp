#include "worker/executor/cuda/decode_runner.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/decode_attention.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Start;

Result<DecodeRunner> DecodeRunner::make(const DecodeModel& model, const DecodeLimits& limits, CudaLaunch launch,
                                        std::uint32_t multiprocessors, cuda::Stream stream) {
  DecodeRunner runner;
  PENSTOCK_TRY(runner.step_, DecodeStep::make(model, limits, stream));
  runner.launch_ = launch;
  runner.kv_heads_ = model.spec->kv_heads;
  runner.multiprocessors_ = multiprocessors;
  if (launch != CudaLaunch::graph) return runner;
  const std::uint32_t most = padded(std::min(limits.sequences_max, decode_rows_max));
  for (std::uint32_t rows = 1; rows <= most; rows *= 2) PENSTOCK_TRY_VOID(runner.record(rows, limits, stream));
  return runner;
}

std::uint32_t DecodeRunner::padded(std::uint32_t count) {
  std::uint32_t rows = 1;
  while (rows < count) rows *= 2;
  return rows;
}

std::uint32_t DecodeRunner::splits_for(std::uint32_t rows, std::uint32_t longest) const {
  return cuda::choose_splits(rows, kv_heads_, longest, multiprocessors_);
}

/// Splits double when a sequence does, so that doubling lengths meet every number of them.
Result<void> DecodeRunner::record(std::uint32_t rows, const DecodeLimits& limits, cuda::Stream stream) {
  std::uint32_t known = 0;
  for (std::uint32_t length = 16; length < 2 * limits.sequence_tokens_max; length *= 2) {
    const std::uint32_t splits = splits_for(rows, std::min(length, limits.sequence_tokens_max));
    if (splits == known) continue;
    known = splits;
    PENSTOCK_TRY(cuda::Graph graph,
                 cuda::Graph::capture(stream, [&] { return step_.queue(rows, splits, Start::overlapped, stream); }));
    graphs_.push_back({rows, splits, std::move(graph)});
  }
  return {};
}

Result<void> DecodeRunner::start(std::uint32_t rows, std::uint32_t longest, cuda::Stream stream) {
  const std::uint32_t splits = splits_for(rows, longest);
  switch (launch_) {
    case CudaLaunch::graph:
      for (const Recorded& recorded : graphs_) {
        if (recorded.rows == rows && recorded.splits == splits) return recorded.graph.launch(stream);
      }
      break;
    case CudaLaunch::direct:
      break;
    case CudaLaunch::ordered:
      return step_.queue(rows, splits, Start::ordered, stream);
  }
  return step_.queue(rows, splits, Start::overlapped, stream);
}

}  // namespace penstock::worker
