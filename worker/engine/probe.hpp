// What the engine measures, as plain calls: worker/app maps them to Prometheus, tests count them.
// Thread: the engine thread; must not block. Times are of the engine's clock.
#pragma once

#include <cstdint>
#include <optional>

#include "common/time/clock.hpp"

namespace penstock::worker {

struct StepMeasure {
  Duration plan{};                 // scheduling
  Duration execute{};              // launch to collect; behind another step, from that one's end
  Duration apply{};                // results to messages
  std::optional<Duration> device;  // of it a GPU was at work, where that is known
  std::uint32_t sequences = 0;
  std::uint32_t decode_tokens = 0;
  std::uint32_t prefill_tokens = 0;
  std::uint64_t context_tokens = 0;  // of all sequences, with the new ones
};

struct EngineGauges {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t blocks_total = 0;
  std::uint32_t blocks_used = 0;    // held by sequences and transfers
  std::uint32_t blocks_cached = 0;  // in the prefix cache, whether used or not
  std::uint32_t blocks_pinned = 0;  // held for transfers
};

class EngineProbe {
 public:
  virtual ~EngineProbe() = default;
  virtual void on_step(const StepMeasure&) {}
  virtual void on_gauges(const EngineGauges&) {}
  /// A choice got its row; `wait` is since its arrival or preemption.
  virtual void on_admitted(Duration /*wait*/, std::uint32_t /*prompt_tokens*/, std::uint32_t /*cached_tokens*/) {}
  virtual void on_preempted() {}
  virtual void on_aborted() {}
  virtual void on_refused() {}
  virtual void on_not_finite() {}
  virtual void on_evicted(std::uint32_t /*blocks*/) {}
};

}  // namespace penstock::worker
