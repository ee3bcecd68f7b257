#include "worker/app/probes.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace penstock::worker {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

metrics::Buckets rate_buckets() {
  return {1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11};
}

}  // namespace

EngineMetrics::EngineMetrics(metrics::Registry& r, DecodeLimit decode_limit)
    : decode_limit_(std::move(decode_limit)),
      step_seconds_(r.histogram("penstock_worker_step_seconds", "Time of one engine step on the executor.",
                                metrics::latency_buckets())),
      gpu_step_seconds_(r.histogram("penstock_worker_gpu_step_seconds",
                                    "Time that a GPU was at work on a decode step; no samples without one.",
                                    metrics::latency_buckets())),
      plan_seconds_(r.histogram("penstock_worker_plan_seconds", "Time to plan a step and to apply its results.",
                                metrics::decision_buckets())),
      batch_sequences_(
          r.histogram("penstock_worker_batch_sequences", "Sequences in a step.", metrics::count_buckets())),
      batch_tokens_(r.histogram("penstock_worker_batch_tokens", "Tokens in a step.", metrics::token_buckets())),
      queue_seconds_(r.histogram("penstock_worker_queue_seconds", "From arrival or preemption to the first step.",
                                 metrics::latency_buckets())),
      gpu_idle_seconds_(r.counter("penstock_worker_gpu_idle_seconds_total",
                                  "Time of decode steps in which the GPU had nothing to do.")),
      prefill_tokens_(r.counter("penstock_worker_prefill_tokens_total", "Prompt tokens computed.")),
      decode_tokens_(r.counter("penstock_worker_decode_tokens_total", "Decode tokens computed.")),
      prompt_tokens_(r.counter("penstock_worker_prompt_tokens_total", "Prompt tokens of admitted choices.")),
      cached_tokens_(r.counter("penstock_worker_cached_tokens_total", "Of these, found in the prefix cache.")),
      preemptions_(r.counter("penstock_worker_preemptions_total", "Sequences sent back to the queue for lack of KV.")),
      aborts_(r.counter("penstock_worker_aborts_total", "Requests or choices aborted.")),
      refusals_(r.counter("penstock_worker_refusals_total", "Requests refused.")),
      not_finite_(
          r.counter("penstock_worker_not_finite_total", "Requests failed since the logits held NaN or infinity.")),
      evicted_blocks_(r.counter("penstock_worker_kv_blocks_evicted_total", "Cached blocks given up for new ones.")),
      running_(r.gauge("penstock_worker_sequences_running", "Sequences with a row.")),
      waiting_(r.gauge("penstock_worker_sequences_waiting", "Sequences without one.")),
      blocks_total_(r.gauge("penstock_worker_kv_blocks", "Blocks in the pool.")),
      blocks_used_(r.gauge("penstock_worker_kv_blocks_used", "Held by sequences and transfers.")),
      blocks_cached_(r.gauge("penstock_worker_kv_blocks_cached", "In the prefix cache, used or not.")),
      blocks_pinned_(r.gauge("penstock_worker_kv_blocks_pinned", "Held for transfers.")),
      kv_usage_(r.gauge("penstock_worker_kv_usage_ratio", "Used share of the pool, 0 to 1.")),
      gpu_limit_ratio_(
          r.gauge("penstock_worker_gpu_decode_limit_ratio",
                  "Least time that a late decode step could take by bytes and arithmetic, over what the GPU "
                  "took; 0 where that is not known.")) {}

void EngineMetrics::on_step(const StepMeasure& measure) {
  step_seconds_.observe(measure.execute);
  if (measure.device) {
    gpu_step_seconds_.observe(*measure.device);
    gpu_idle_seconds_.increment(seconds(std::max(measure.execute - *measure.device, Duration::zero())));
    last_decode_ = measure;
  }
  plan_seconds_.observe(measure.plan + measure.apply);
  batch_sequences_.observe(static_cast<double>(measure.sequences));
  batch_tokens_.observe(static_cast<double>(measure.decode_tokens + measure.prefill_tokens));
  prefill_tokens_.increment(measure.prefill_tokens);
  decode_tokens_.increment(measure.decode_tokens);
}

void EngineMetrics::compare_with_limit() {
  if (!decode_limit_ || !last_decode_.device || *last_decode_.device <= Duration::zero()) return;
  const Duration limit = decode_limit_(last_decode_.sequences, last_decode_.context_tokens);
  gpu_limit_ratio_.set(seconds(limit) / seconds(*last_decode_.device));
}

void EngineMetrics::on_gauges(const EngineGauges& gauges) {
  compare_with_limit();
  running_.set(gauges.running);
  waiting_.set(gauges.waiting);
  blocks_total_.set(gauges.blocks_total);
  blocks_used_.set(gauges.blocks_used);
  blocks_cached_.set(gauges.blocks_cached);
  blocks_pinned_.set(gauges.blocks_pinned);
  kv_usage_.set(gauges.blocks_total > 0 ? static_cast<double>(gauges.blocks_used) / gauges.blocks_total : 0);
}

void EngineMetrics::on_admitted(Duration wait, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
  queue_seconds_.observe(wait);
  prompt_tokens_.increment(prompt_tokens);
  cached_tokens_.increment(cached_tokens);
}

TransferMetrics::TransferMetrics(metrics::Registry& r, log::Logger logger)
    : wire_seconds_(r.histogram("penstock_worker_transfer_wire_seconds", "First read posted to last read done.",
                                metrics::latency_buckets())),
      offer_to_commit_seconds_(r.histogram("penstock_worker_transfer_offer_to_commit_seconds",
                                           "First offer in to last chunk committed.", metrics::latency_buckets())),
      exposed_seconds_(r.histogram("penstock_worker_transfer_exposed_seconds",
                                   "Last offer in to last chunk committed: what decode waited for.",
                                   metrics::latency_buckets())),
      post_seconds_(r.histogram("penstock_worker_transfer_post_seconds", "Time to post the reads of a chunk.",
                                metrics::decision_buckets())),
      chunk_commit_seconds_(r.histogram("penstock_worker_transfer_chunk_commit_seconds",
                                        "Offer in to commit, of one chunk.", metrics::latency_buckets())),
      bytes_per_second_(r.histogram("penstock_worker_transfer_bytes_per_second", "Of a whole transfer, on the wire.",
                                    rate_buckets())),
      descriptors_(r.histogram("penstock_worker_transfer_descriptors", "Reads of a transfer, after merging runs.",
                               metrics::count_buckets())),
      heartbeat_seconds_(r.histogram("penstock_worker_transfer_heartbeat_seconds",
                                     "Round trip of a PING between workers.", metrics::latency_buckets())),
      self_test_bytes_per_second_(
          r.gauge("penstock_worker_transfer_self_test_bytes_per_second", "What the self-test at start measured.")),
      sends_(r.gauge("penstock_worker_transfer_sends", "Transfers that this worker offers now.")),
      receives_(r.gauge("penstock_worker_transfer_receives", "Transfers that this worker fetches now.")),
      links_(r.gauge("penstock_worker_transfer_links", "Workers connected for transfers.")),
      pinned_bytes_(r.gauge("penstock_worker_transfer_pinned_bytes", "KV held for readers.")),
      oldest_pin_seconds_(r.gauge("penstock_worker_transfer_oldest_pin_seconds", "Age of the oldest pin.")),
      reserved_bytes_(r.gauge("penstock_worker_transfer_reserved_bytes", "KV reserved to be filled.")),
      bytes_in_flight_(r.gauge("penstock_worker_transfer_bytes_in_flight", "Posted reads.")),
      tombstone_hits_(r.gauge("penstock_worker_transfer_tombstone_hits", "Messages about ended transfers, so far.")),
      leases_expired_(r.gauge("penstock_worker_transfer_leases_expired", "Leases that ended unrenewed, so far.")),
      links_lost_(r.gauge("penstock_worker_transfer_links_lost", "Workers lost, so far.")),
      messages_bad_(r.gauge("penstock_worker_transfer_messages_bad", "Messages that could not be read, so far.")),
      logger_(std::move(logger)) {
  for (std::size_t lane = 0; lane < kv_lane_count; ++lane) {
    lane_bytes_[lane] =
        r.counter("penstock_worker_transfer_lane_bytes_total", "KV bytes read from peers, by the way that they went.",
                  {{"lane", std::string(to_string(static_cast<KvLane>(lane)))}});
  }
  const std::array<std::string, 2> sides{"send", "receive"};
  for (std::size_t side = 0; side < sides.size(); ++side) {
    bytes_[side] =
        r.counter("penstock_worker_transfer_bytes_total", "KV bytes of ended transfers.", {{"side", sides[side]}});
    for (std::size_t end = 0; end < end_count; ++end) {
      ended_[side][end] =
          r.counter("penstock_worker_transfers_total", "Ended transfers.",
                    {{"side", sides[side]}, {"outcome", std::string(to_string(static_cast<TransferEnd>(end)))}});
    }
  }
}

void TransferMetrics::on_transfer_ended(const transfer::TransferRecord& record) {
  const auto side = static_cast<std::size_t>(record.side);
  ended_[side][static_cast<std::size_t>(record.end)].increment();
  bytes_[side].increment(static_cast<double>(record.bytes));
  if (record.side == transfer::Side::send || record.end != TransferEnd::committed) return;
  wire_seconds_.observe(record.wire);
  offer_to_commit_seconds_.observe(record.offer_to_commit);
  exposed_seconds_.observe(record.exposed);
  descriptors_.observe(static_cast<double>(record.descriptors));
  if (record.wire > Duration::zero()) {
    bytes_per_second_.observe(static_cast<double>(record.bytes) / seconds(record.wire));
  }
}

void TransferMetrics::on_chunk_committed(Duration offer_to_commit, std::uint64_t) {
  chunk_commit_seconds_.observe(offer_to_commit);
}

void TransferMetrics::on_reads_posted(Duration post, std::uint32_t) {
  post_seconds_.observe(post);
}

void TransferMetrics::on_gauges(const transfer::TransferGauges& gauges) {
  sends_.set(static_cast<double>(gauges.sends_live));
  receives_.set(static_cast<double>(gauges.receives_live));
  links_.set(static_cast<double>(gauges.links_up));
  pinned_bytes_.set(static_cast<double>(gauges.pinned_bytes));
  oldest_pin_seconds_.set(seconds(gauges.oldest_pin));
  reserved_bytes_.set(static_cast<double>(gauges.reserved_bytes));
  bytes_in_flight_.set(static_cast<double>(gauges.bytes_in_flight));
  tombstone_hits_.set(static_cast<double>(gauges.tombstone_hits));
  leases_expired_.set(static_cast<double>(gauges.leases_expired));
  links_lost_.set(static_cast<double>(gauges.links_lost));
  messages_bad_.set(static_cast<double>(gauges.messages_bad));
}

}  // namespace penstock::worker
