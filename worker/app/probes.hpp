// The engine's and the transfer service's measurements as Prometheus series, all created at zero. Names start with
// penstock_worker_. Owner: run_worker; thread-safe, since metric handles are.
#pragma once

#include <array>

#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"
#include "worker/app/backend.hpp"
#include "worker/engine/probe.hpp"
#include "worker/transfer/probe.hpp"

namespace penstock::worker {

class EngineMetrics final : public EngineProbe {
 public:
  EngineMetrics(metrics::Registry& registry, DecodeLimit decode_limit);

  void on_step(const StepMeasure& measure) override;
  void on_gauges(const EngineGauges& gauges) override;
  void on_admitted(Duration wait, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) override;
  void on_preempted() override { preemptions_.increment(); }
  void on_aborted() override { aborts_.increment(); }
  void on_refused() override { refusals_.increment(); }
  void on_not_finite() override { not_finite_.increment(); }
  void on_evicted(std::uint32_t blocks) override { evicted_blocks_.increment(blocks); }

 private:
  void compare_with_limit();

  DecodeLimit decode_limit_;
  StepMeasure last_decode_;
  metrics::Histogram step_seconds_, gpu_step_seconds_, plan_seconds_, batch_sequences_, batch_tokens_, queue_seconds_;
  metrics::Counter gpu_idle_seconds_;
  metrics::Counter prefill_tokens_, decode_tokens_, prompt_tokens_, cached_tokens_;
  metrics::Counter preemptions_, aborts_, refusals_, not_finite_, evicted_blocks_;
  metrics::Gauge running_, waiting_, blocks_total_, blocks_used_, blocks_cached_, blocks_pinned_, kv_usage_;
  metrics::Gauge gpu_limit_ratio_;
};

class TransferMetrics final : public transfer::TransferProbe {
 public:
  TransferMetrics(metrics::Registry& registry, log::Logger logger);

  void on_transfer_ended(const transfer::TransferRecord& record) override;
  void on_chunk_committed(Duration offer_to_commit, std::uint64_t bytes) override;
  void on_reads_posted(Duration post, std::uint32_t descriptors) override;
  void on_bytes_asked(KvLane lane, std::uint64_t bytes) override {
    lane_bytes_[static_cast<std::size_t>(lane)].increment(static_cast<double>(bytes));
  }
  void on_heartbeat(Duration round_trip) override { heartbeat_seconds_.observe(round_trip); }
  void on_self_test(double bytes_per_second) override { self_test_bytes_per_second_.set(bytes_per_second); }
  void on_gauges(const transfer::TransferGauges& gauges) override;
  void on_note(std::string_view what, std::string_view detail) override { logger_.info(what, {{"detail", detail}}); }

 private:
  static constexpr std::size_t end_count = 6;
  std::array<std::array<metrics::Counter, end_count>, 2> ended_;  // by side, then by TransferEnd
  std::array<metrics::Counter, 2> bytes_;
  std::array<metrics::Counter, kv_lane_count> lane_bytes_;
  metrics::Histogram wire_seconds_, offer_to_commit_seconds_, exposed_seconds_, post_seconds_, chunk_commit_seconds_;
  metrics::Histogram bytes_per_second_, descriptors_, heartbeat_seconds_;
  metrics::Gauge self_test_bytes_per_second_, sends_, receives_, links_, pinned_bytes_, oldest_pin_seconds_;
  metrics::Gauge reserved_bytes_, bytes_in_flight_, tombstone_hits_, leases_expired_, links_lost_, messages_bad_;
  log::Logger logger_;
};

}  // namespace penstock::worker
