// The real engine, with its thread, over any executor: what passes between two decode steps. For benchmarks.
#pragma once

#include <cstdint>

#include "worker/engine/executor.hpp"

namespace penstock::bench {

struct LoopShape {
  std::uint32_t sequences = 1;
  std::uint32_t prompt_tokens = 192;
  std::uint32_t steps = 64;           // that are measured
  std::uint32_t steps_in_flight = 2;  // at most what the executor takes
  float temperature = 0;
};

/// Medians over decode steps of all sequences, in seconds.
struct LoopFigures {
  double step = 0;    // from end to end, as the engine's thread sees it
  double device = 0;  // of it the GPU was at work; 0: the executor does not say
  double plan = 0;    // of the engine's thread
  double apply = 0;   // the same, with what goes to the sink
  std::uint32_t steps = 0;
};

LoopFigures run_loop(worker::Executor& executor, const LoopShape& shape);

}  // namespace penstock::bench
