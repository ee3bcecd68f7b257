#include "worker/engine/engine_core.hpp"

#include <algorithm>

namespace penstock::worker {

namespace {

SchedulerConfig scheduler_config(const EngineConfig& config, Executor& executor, bool transfers) {
  const ExecutorLimits& limits = executor.limits();
  const KvPoolView pool = executor.kv_pool();
  SchedulerConfig out;
  out.step_tokens_max = std::min(config.step_tokens_max, limits.step_tokens_max);
  out.sequences_max = std::min(config.sequences_max, limits.sequences_max);
  out.waiting_max = config.waiting_max;
  out.prefill_chunk_tokens_max = config.prefill_chunk_tokens_max;
  out.context_tokens = limits.sequence_tokens_max;
  out.vocabulary_size = limits.vocabulary_size;
  out.blocks = pool.blocks;
  out.block_tokens = pool.geometry.block_tokens;
  out.pinned_share_max = config.pinned_share_max;
  out.prefix_cache = config.prefix_cache;
  out.transfer = transfers;
  out.eos_tokens = config.eos_tokens;
  return out;
}

float seconds(Duration duration) {
  return std::chrono::duration<float>(duration).count();
}

float smoothed(float old, float sample) {
  return old == 0 ? sample : old + 0.1f * (sample - old);
}

// Far below the frame limit: 16 bytes and some overhead a block.
constexpr std::uint32_t snapshot_part_blocks = 8192;

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, Executor& executor, KvTransferPort* transfer, EngineSink& sink,
                       const Clock& clock, EngineProbe* probe, const PrefixHasher& hasher, std::uint64_t epoch)
    : config_(config),
      executor_(executor),
      transfer_(transfer),
      sink_(sink),
      clock_(clock),
      probe_(probe),
      scheduler_(scheduler_config(config, executor, transfer != nullptr), hasher),
      epoch_(epoch),
      load_due_(clock.now()),
      progress_due_(load_due_ + config.progress_interval) {}

void EngineCore::handle(EngineCommand command) {
  if (under_way_.empty()) return execute(command);
  commands_.push_back(std::move(command));
}

void EngineCore::execute(EngineCommand& command) {
  const TimePoint now = clock_.now();
  struct Visitor {
    EngineCore& core;
    TimePoint now;
    void operator()(protocol::Generate& c) const {
      ++core.requests_seen_;
      core.scheduler_.generate(std::move(c), now);
    }
    void operator()(protocol::Prefill& c) const {
      ++core.requests_seen_;
      core.scheduler_.prefill(std::move(c), now);
    }
    void operator()(protocol::Expect& c) const {
      ++core.requests_seen_;
      core.scheduler_.expect(std::move(c), now);
    }
    void operator()(protocol::Reoffer& c) const { core.scheduler_.reoffer(c); }
    void operator()(protocol::Release& c) const { core.scheduler_.release(c); }
    void operator()(protocol::Abort& c) const { core.scheduler_.abort(c); }
    void operator()(SnapshotWanted& c) const { core.send_snapshot(c.ticket); }
    void operator()(DrainEngine&) const { core.scheduler_.drain(); }
    void operator()(TransferEvent& c) const { core.scheduler_.on_transfer(c, now); }
  };
  std::visit(Visitor{*this, now}, command);
}

Result<bool> EngineCore::step() {
  if (under_way_.empty()) {
    for (EngineCommand& command : std::exchange(commands_, {})) execute(command);
    if (!start_step()) return false;
  }
  const bool may_start = commands_.empty() && under_way_.size() < executor_.steps_in_flight_max();
  if (may_start && clock_.now() < next_due()) return false;
  if (may_start) start_next();
  PENSTOCK_TRY_VOID(end_step());
  return true;
}

bool EngineCore::start_step() {
  const TimePoint begin = clock_.now();
  const StepBatch& batch = scheduler_.plan(begin);
  // What commands, deadlines and admission caused goes out before the step, which may take long.
  flush();
  if (batch.sequences.empty()) return false;
  launch(batch, clock_.now() - begin);
  return true;
}

void EngineCore::start_next() {
  const TimePoint begin = clock_.now();
  if (const StepBatch* batch = scheduler_.plan_ahead(begin)) launch(*batch, clock_.now() - begin);
}

void EngineCore::launch(const StepBatch& batch, Duration plan) {
  StepMeasure measure;
  measure.plan = plan;
  measure.sequences = static_cast<std::uint32_t>(batch.sequences.size());
  measure.decode_tokens = scheduler_.decode_tokens();
  measure.prefill_tokens = scheduler_.prefill_tokens();
  for (const SequenceStep& step : batch.sequences) measure.context_tokens += step.position + step.tokens.size();
  under_way_.push_back({measure, clock_.now()});
  if (under_way_.size() == 1) watch_oldest(under_way_.front().launched);
  executor_.launch(batch);
}

Result<void> EngineCore::end_step() {
  auto result = executor_.collect();
  const TimePoint ended = clock_.now();
  auto [measure, launched] = under_way_.front();
  under_way_.erase(under_way_.begin());
  ++steps_ended_;
  watch_oldest(ended);
  if (!result) {
    under_way_.clear();
    fail_all(make_error(ErrorCode::unavailable, "the worker's backend failed"));
    return std::move(result).error();
  }
  measure.execute = ended - std::max(launched, last_end_);
  measure.device = result->device_time;
  scheduler_.apply(*result, ended);
  smooth_rates(measure);
  flush();
  measure.apply = clock_.now() - ended;
  last_end_ = ended;
  last_step_ = measure;
  if (probe_) probe_->on_step(measure);
  return {};
}

void EngineCore::watch_oldest(TimePoint since) {
  if (under_way_.empty()) return watch_.set(std::nullopt, since);
  const StepMeasure& measure = under_way_.front().measure;
  StuckStep step;
  step.number = steps_ended_ + 1;
  step.sequences = measure.sequences;
  step.decode_tokens = measure.decode_tokens;
  step.prefill_tokens = measure.prefill_tokens;
  step.steps_under_way = static_cast<std::uint32_t>(under_way_.size());
  watch_.set(step, since);
}

std::optional<StuckStep> EngineCore::find_stuck(Duration limit) const {
  auto stuck = watch_.find_stuck(clock_.now(), limit);
  if (stuck) stuck->backend = executor_.state();
  return stuck;
}

/// When the next step should be started: a while before the end of the one under way. At once where that is unknown.
TimePoint EngineCore::next_due() const {
  const UnderWay& step = under_way_.front();
  const bool is_like_last = step.measure.sequences == last_step_.sequences && last_step_.prefill_tokens == 0 &&
                            step.measure.prefill_tokens == 0;
  if (!is_like_last) return step.launched;
  const Duration margin = std::max<Duration>(config_.ahead_min, last_step_.execute / 8);
  return std::max(step.launched, last_end_) + last_step_.execute - margin;
}

void EngineCore::smooth_rates(const StepMeasure& measure) {
  const float taken = seconds(measure.execute);
  if (taken <= 0) return;
  const auto prefill = static_cast<float>(measure.prefill_tokens);
  const bool decodes = measure.decode_tokens > 0;
  if (prefill > 0 && !decodes) tokens_per_second_prefill_ = smoothed(tokens_per_second_prefill_, prefill / taken);
  if (prefill == 0 && decodes) step_seconds_decode_ = smoothed(step_seconds_decode_, taken);
}

void EngineCore::flush() {
  SchedulerOutput output = scheduler_.take_output();
  observe(output);
  // Cache events go first: a peer or router that acts on a token must be able to know the blocks behind it.
  flush_events();
  auto progress = progress_due();
  if (!output.steps.empty() || !progress.empty()) sink_.on_step({std::move(output.steps), std::move(progress)});
  for (auto& status : output.statuses) sink_.on_transfer_status(std::move(status));
  for (auto& error : output.errors) sink_.on_request_error(std::move(error));
  for (auto& action : output.actions) call_transfer(std::move(action));
  for (const auto& [request, attempt] : output.ended) sink_.on_request_end(request, attempt);
  send_load();
  if (scheduler_.is_drained() && !std::exchange(drained_said_, true)) sink_.on_drained();
}

std::vector<protocol::Progress> EngineCore::progress_due() {
  const TimePoint now = clock_.now();
  if (now < progress_due_) return {};
  progress_due_ = now + config_.progress_interval;
  return scheduler_.take_progress();
}

void EngineCore::flush_events() {
  auto events = scheduler_.cache().take_events();
  if (events.empty()) return;
  sink_.on_cache_events({epoch_, ++event_sequence_, std::move(events)});
}

void EngineCore::observe(const SchedulerOutput& output) {
  if (!probe_) return;
  for (const Admission& admission : output.admissions) {
    probe_->on_admitted(admission.wait, admission.prompt_tokens, admission.cached_tokens);
  }
  for (std::uint32_t i = 0; i < output.preempted; ++i) probe_->on_preempted();
  for (std::uint32_t i = 0; i < output.aborted; ++i) probe_->on_aborted();
  for (std::uint32_t i = 0; i < output.refused; ++i) probe_->on_refused();
  for (std::uint32_t i = 0; i < output.not_finite; ++i) probe_->on_not_finite();
  const std::uint64_t evictions = scheduler_.cache().evictions();
  if (evictions > evictions_seen_) probe_->on_evicted(static_cast<std::uint32_t>(evictions - evictions_seen_));
  evictions_seen_ = evictions;
}

void EngineCore::send_snapshot(std::uint64_t ticket) {
  flush_events();  // so that `sequence` covers all that the snapshot shows
  std::vector<protocol::Snapshot> parts;
  std::uint32_t room = 0;
  for (auto& run : scheduler_.cache().snapshot(snapshot_part_blocks)) {
    const auto size = static_cast<std::uint32_t>(run.blocks.size()) + 4;  // a run's own fields weigh some blocks
    if (parts.empty() || room < size) {
      parts.push_back({epoch_, event_sequence_, static_cast<std::uint32_t>(parts.size()), false, {}});
      room = snapshot_part_blocks + 4;
    }
    room -= size;
    parts.back().stored.push_back(std::move(run));
  }
  if (parts.empty()) parts.push_back({epoch_, event_sequence_, 0, false, {}});
  parts.back().last = true;
  sink_.on_snapshot(ticket, std::move(parts));
}

// At every interval, and between when the numbers of choices change, but no more than ten times an interval.
void EngineCore::send_load() {
  const TimePoint now = clock_.now();
  const bool is_due = now >= load_due_;
  if (!is_due && now < load_due_ - config_.load_interval * 9 / 10) return;
  protocol::Load load = scheduler_.load();
  const bool has_changed =
      load.running != last_load_.running || load.waiting != last_load_.waiting || load.draining != last_load_.draining;
  if (!is_due && !has_changed) return;
  load.tokens_per_second_prefill = tokens_per_second_prefill_;
  load.step_seconds_decode = step_seconds_decode_;
  load.requests_seen = requests_seen_;
  last_load_ = load;
  load_due_ = now + config_.load_interval;
  sink_.on_load(load);
  if (!probe_) return;
  const KvCache& cache = scheduler_.cache();
  probe_->on_gauges(
      {load.running, load.waiting, cache.blocks(), cache.blocks() - cache.available(), cache.cached(), cache.pinned()});
}

TimePoint EngineCore::wake_at() const {
  if (!under_way_.empty()) return commands_.empty() ? next_due() : clock_.now();
  const auto deadline = scheduler_.next_deadline();
  return deadline ? std::min(*deadline, load_due_) : load_due_;
}

void EngineCore::fail_all(const Error& error) {
  under_way_.clear();
  scheduler_.fail_all(error);
  for (EngineCommand& command : std::exchange(commands_, {})) execute(command);
  scheduler_.fail_all(error);
  flush();
}

void EngineCore::call_transfer(TransferAction action) {
  struct Visitor {
    KvTransferPort& port;
    void operator()(BeginSend& a) const { port.begin_send(a.route, a.request); }
    void operator()(OfferChunk& a) const { port.offer(std::move(a)); }
    void operator()(BeginReceive& a) const { port.begin_receive(a.route, a.request, a.deadline); }
    void operator()(Reservation& a) const { port.reserve(std::move(a)); }
    void operator()(RefuseReservation& a) const { port.refuse_reservation(a.key, a.chunk); }
    void operator()(ReofferSend& a) const { port.reoffer(a.route); }
    void operator()(CancelTransfer& a) const { port.cancel(a.key, std::move(a.reason)); }
  };
  if (transfer_) std::visit(Visitor{*transfer_}, action);
}

}  // namespace penstock::worker
