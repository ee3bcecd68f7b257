// The shortest time that one decode step can take: bytes over the read rate or arithmetic over the matrix rate, the
// larger for each matrix, plus starts of kernels and collectives. What it leaves out makes real steps slower, never
// faster. Pure; any thread.
#pragma once

#include <cstdint>

#include "worker/core/parallel/rank_layout.hpp"
#include "worker/core/plan/device_kind.hpp"
#include "worker/core/plan/memory.hpp"
#include "worker/core/plan/model_shape.hpp"

namespace penstock::worker::plan {

struct StepTime {
  double weights_seconds = 0;     // matrices: the larger of reading and arithmetic
  double kv_seconds = 0;          // reading keys and values
  double launch_seconds = 0;      // gaps between dependent kernels of a graph
  double collective_seconds = 0;  // between ranks
  double total() const { return weights_seconds + kv_seconds + launch_seconds + collective_seconds; }
};

/// Time between tokens with `sequences` on all devices together, each of `sequence_tokens`. Sequences are shared among
/// data replicas, and among micro-batches that fill the pipeline.
StepTime decode_step_time(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device,
                          const MemoryOptions& options, std::uint32_t sequences, std::uint32_t sequence_tokens);

/// Experts of one rank that a step reads: the mean under even routing plus one standard deviation over ranks, since
/// the busiest rank holds up the others. `tokens` are those of all ranks that share the experts.
double experts_read(const ModelShape& shape, const RankLayout& layout, double tokens);

}  // namespace penstock::worker::plan
