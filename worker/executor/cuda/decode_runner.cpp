#include "worker/executor/cuda/decode_runner.hpp"

#include <algorithm>

#include "kernels/cuda/decode_attention.hpp"

namespace penstock::worker {

namespace cuda = kernels::cuda;
using cuda::Start;

namespace {

constexpr std::uint32_t usual_rows_max = 128;

}  // namespace

Result<DecodeRunner> DecodeRunner::make(const DecodeModel& model, const DecodeLimits& limits, CudaLaunch launch,
                                        cuda::Stream stream) {
  DecodeRunner runner;
  PENSTOCK_TRY(runner.step_, DecodeStep::make(model, limits, stream));
  runner.launch_ = launch;
  runner.kv_heads_ = model.spec->kv_heads;
  runner.multiprocessors_ = model.multiprocessors;
  if (launch == CudaLaunch::graph) PENSTOCK_TRY_VOID(runner.record_usual(limits, stream));
  return runner;
}

DecodeRunner::Size DecodeRunner::size_of(std::uint32_t sequences, std::uint32_t longest) const {
  const std::uint32_t rows = decode_rows(sequences);
  return {rows, cuda::choose_splits(rows, kv_heads_, longest, multiprocessors_)};
}

/// Splits double when a sequence does, so that doubling lengths meet every number of them.
Result<void> DecodeRunner::record_usual(const DecodeLimits& limits, cuda::Stream stream) {
  const std::uint32_t most = std::min(step_.rows_max(), usual_rows_max);
  for (std::uint32_t rows = 1; rows <= most; rows = decode_rows(rows + 1)) {
    for (std::uint32_t length = 16; length < 2 * limits.sequence_tokens_max; length *= 2) {
      const Size size = size_of(rows, std::min(length, limits.sequence_tokens_max));
      const bool is_known = !graphs_.empty() && graphs_.back().size == size;
      if (is_known || graph_bytes_ >= graph_bytes_max) continue;
      // No recording may load cuBLASLt's kernels, which a first run does. All rows are empty so far.
      if (rows > fused_rows_max) PENSTOCK_TRY_VOID(step_.queue(size.rows, size.splits, Start::ordered, stream));
      PENSTOCK_TRY_VOID(record(size, stream));
    }
  }
  return {};
}

Result<void> DecodeRunner::record(Size size, cuda::Stream stream) {
  PENSTOCK_TRY(const std::uint64_t before, cuda::free_memory());
  PENSTOCK_TRY(cuda::Graph graph, cuda::Graph::capture(stream, [&] {
                 return step_.queue(size.rows, size.splits, Start::overlapped, stream);
               }));
  PENSTOCK_TRY(const std::uint64_t after, cuda::free_memory());
  graph_bytes_ += before - std::min(before, after);
  graphs_.push_back({size, std::move(graph)});
  return {};
}

/// Null: there is none yet.
Result<const DecodeRunner::Recorded*> DecodeRunner::find(Size size, cuda::Stream stream) {
  const auto of_size = [&](const Recorded& recorded) { return recorded.size == size; };
  auto found = std::find_if(graphs_.begin(), graphs_.end(), of_size);
  if (found != graphs_.end()) return static_cast<const Recorded*>(&*found);
  const bool was_started = std::find(started_.begin(), started_.end(), size) != started_.end();
  if (!was_started) {
    started_.push_back(size);
  } else if (graph_bytes_ < graph_bytes_max) {
    PENSTOCK_TRY_VOID(record(size, stream));
    return static_cast<const Recorded*>(&graphs_.back());
  }
  return static_cast<const Recorded*>(nullptr);
}

Result<void> DecodeRunner::start(Turn turn, std::uint32_t sequences, std::uint32_t longest, cuda::Stream stream) {
  const Size size = size_of(sequences, longest);
  PENSTOCK_TRY_VOID(step_.queue_inputs(turn, size.rows, stream));
  switch (launch_) {
    case CudaLaunch::graph: {
      PENSTOCK_TRY(const Recorded* const recorded, find(size, stream));
      if (recorded != nullptr) return recorded->graph.launch(stream);
      break;
    }
    case CudaLaunch::direct:
      break;
    case CudaLaunch::ordered:
      return step_.queue(size.rows, size.splits, Start::ordered, stream);
  }
  return step_.queue(size.rows, size.splits, Start::overlapped, stream);
}

}  // namespace penstock::worker
