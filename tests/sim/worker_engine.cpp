// The engine thread of a simulated worker: commands between steps, one step at a time, then what happened.
#include "tests/sim/overload.hpp"
#include "tests/sim/worker.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;

namespace {

std::uint32_t sequences_max_of(const Plan& plan, const WorkerPlan& shape) {
  return shape.sequences_max + (plan.bug == Bug::sequences_unbounded ? 4 : 0);
}

/// Every other worker starts steps ahead.
worker::FakeModel model_of(const Plan& plan, std::uint32_t slot) {
  const WorkerPlan& shape = plan.workers[slot];
  worker::FakeModel model = plan.model;
  model.steps_in_flight = 1 + slot % 2;
  model.blocks = shape.blocks;
  model.limits.sequences_max = sequences_max_of(plan, shape);
  return model;
}

worker::SchedulerConfig config_of(const Plan& plan, const WorkerPlan& shape) {
  worker::SchedulerConfig config;
  config.step_tokens_max = plan.model.limits.step_tokens_max;
  config.prefill_chunk_tokens_max = 16;
  config.sequences_max = sequences_max_of(plan, shape);
  config.waiting_max = 32;
  config.context_tokens = plan.context_tokens;
  config.vocabulary_size = plan.model.limits.vocabulary_size;
  config.blocks = shape.blocks;
  config.block_tokens = plan.block_tokens;
  config.pinned_share_max = shape.pinned_share_max;
  config.transfer = true;
  if (plan.model.eos_token) config.eos_tokens = {*plan.model.eos_token};
  return config;
}

}  // namespace

SimWorker::SimWorker(WorkerContext context, std::uint32_t slot, InstanceId instance)
    : context_(context),
      plan_(context.plan),
      events_(context.events),
      slot_(slot),
      shape_(plan_.workers[slot]),
      clock_(events_.clock(), shape_.clock_rate, shape_.clock_offset),
      instance_(instance),
      process_(events_),
      hasher_(plan_.block_tokens, plan_.bug == Bug::salt_ignored ? SimHasher::Salt::ignored : SimHasher::Salt::counts),
      executor_(model_of(plan_, slot_)),
      scheduler_(config_of(plan_, shape_), hasher_),
      transport_(context.fabric, slot,
                 {[this] { poll_soon(); }, [this](std::uint64_t offset) { return generation_at(offset); },
                  [this](std::uint64_t offset, std::uint64_t bytes, std::uint64_t generation) {
                    check_write(offset, bytes, generation);
                  },
                  [this] { return process_.is_frozen(); }, [this](base::Bytes& message) { on_arrival(message); }}),
      driver_(
          plan_.transfer, local_node(), transport_, *this,
          [this](worker::TransferEvent event) { to_engine(std::move(event)); }, clock_, *this, events_.random().next()),
      epoch_(events_.random().next()) {
  send_load();
}

SimWorker::~SimWorker() {
  for (auto& [id, session] : sessions_) drop_worker_end(events_, session.wire);
  while (!channels_.empty()) drop_channel(channels_.begin()->first, events_.between(100us, 5ms));
}

void SimWorker::violation(const std::string& what) {
  context_.violations.add("worker " + std::to_string(slot_) + ": " + what);
}

void SimWorker::post(worker::EngineCommand command) {
  inbox_.push_back(std::move(command));
  wake();
}

void SimWorker::wake() {
  if (is_awake_ || is_stepping_) return;
  is_awake_ = true;
  process_.after(events_.between(1us, 50us), [this] {
    is_awake_ = false;
    turn();
  });
}

void SimWorker::turn() {
  if (is_stepping_) return;
  while (!inbox_.empty()) {
    worker::EngineCommand command = std::move(inbox_.front());
    inbox_.pop_front();
    execute(command);
    publish();
  }
  plan_step();
}

void SimWorker::execute(worker::EngineCommand& command) {
  const TimePoint now = clock_.now();
  std::visit(Overload{
                 [&](protocol::Generate& one) { scheduler_.generate(std::move(one), now); },
                 [&](protocol::Prefill& one) { scheduler_.prefill(std::move(one), now); },
                 [&](protocol::Expect& one) { scheduler_.expect(std::move(one), now); },
                 [&](protocol::Reoffer& one) { scheduler_.reoffer(one); },
                 [&](protocol::Release& one) { scheduler_.release(one); },
                 [&](protocol::Abort& one) { scheduler_.abort(one); },
                 [&](worker::SnapshotWanted& one) { send_snapshot(one.ticket); },
                 [&](worker::DrainEngine&) { scheduler_.drain(); },
                 [&](worker::TransferEvent& one) { scheduler_.on_transfer(one, now); },
             },
             command);
}

void SimWorker::plan_step() {
  const worker::StepBatch& batch = scheduler_.plan(clock_.now());
  const bool is_idle = batch.sequences.empty();
  if (!is_idle) {
    check_batch(batch);
    executor_.launch(batch);
    go_on();
  }
  publish();
  if (!is_idle) return;
  const auto deadline = scheduler_.next_deadline();
  if (!deadline || (deadline_wake_ && *deadline_wake_ <= *deadline && *deadline_wake_ > clock_.now())) return;
  deadline_wake_ = deadline;
  process_.after(clock_.until(*deadline), [this] { wake(); });
}

/// Starts the step behind the one under way, if nobody waits to come between, and waits for the end of the oldest.
void SimWorker::go_on() {
  is_stepping_ = true;
  const bool may_start = inbox_.empty() && scheduler_.steps_under_way() < executor_.steps_in_flight_max();
  if (const worker::StepBatch* next = may_start ? scheduler_.plan_ahead(clock_.now()) : nullptr) {
    check_batch(*next);
    executor_.launch(*next);
    ++context_.tally.planned_ahead;
  }
  process_.after(executor_.last_step_time() * slowness_, [this] { finish_step(); });
}

void SimWorker::finish_step() {
  auto result = executor_.collect();
  is_stepping_ = false;
  if (!result) return violation("the executor failed: " + result.error().message);
  scheduler_.apply(*result, clock_.now());
  publish();
  check_cache();
  if (scheduler_.steps_under_way() > 0) return go_on();
  turn();
}

void SimWorker::publish() {
  worker::SchedulerOutput output = scheduler_.take_output();
  context_.tally.preempted += output.preempted;
  preempted_ += output.preempted;
  context_.tally.refusals += output.refused;
  publish_cache_events();
  publish_steps(std::move(output.steps));
  const auto session_of = [&](RequestId request) -> Session* {
    const auto owner = owners_.find(request);
    return owner == owners_.end() ? nullptr : &sessions_.at(owner->second);
  };
  for (auto& status : output.statuses) {
    if (Session* session = session_of(status.request)) send(*session, status);
  }
  for (auto& error : output.errors) {
    if (Session* session = session_of(error.request)) send(*session, error);
  }
  for (auto& action : output.actions) to_driver(std::move(action));
  for (const auto& [request, attempt] : output.ended) end_request(request, attempt);
}

void SimWorker::publish_steps(std::vector<protocol::ChoiceStep> steps) {
  std::map<std::uint64_t, protocol::Step> by_session;
  for (auto& step : steps) {
    const auto owner = owners_.find(step.request);
    check_cached_tokens(step);
    if (owner != owners_.end()) by_session[owner->second].choices.push_back(std::move(step));
  }
  if (events_.now() >= progress_due_) {
    progress_due_ = events_.now() + progress_interval;
    for (const auto& progress : scheduler_.take_progress()) {
      const auto owner = owners_.find(progress.request);
      if (owner != owners_.end()) by_session[owner->second].progress.push_back(progress);
    }
  }
  for (auto& [id, step] : by_session) send(sessions_.at(id), std::move(step));
}

void SimWorker::publish_cache_events() {
  protocol::CacheEvents events{epoch_, event_sequence_ + 1, scheduler_.cache().take_events()};
  if (events.events.empty()) return;
  if (plan_.bug == Bug::cache_events_lost && events_.chance(0.1)) return;
  ++event_sequence_;
  broadcast_events(events);
}

void SimWorker::broadcast_events(const protocol::CacheEvents& events) {
  const bool is_calm = events_.now() >= plan_.quiet_at;
  if (!is_calm && !overtaken_ && events_.chance(plan_.cache_events.swap)) {
    overtaken_ = events;
    process_.after(20ms, [this, sequence = events.sequence] {  // if none comes
      if (overtaken_ && overtaken_->sequence == sequence) broadcast(*std::exchange(overtaken_, std::nullopt));
    });
    return;
  }
  broadcast(events);
  if (!is_calm && events_.chance(plan_.cache_events.repeat)) broadcast(events);
  if (const auto late = std::exchange(overtaken_, std::nullopt)) broadcast(*late);
}

void SimWorker::renew_epoch() {
  publish_cache_events();
  overtaken_.reset();
  epoch_ = events_.random().next();
  event_sequence_ = 0;
  // Otherwise routers could not know before the next block is stored or removed.
  broadcast(protocol::CacheEvents{epoch_, ++event_sequence_, {}});
}

void SimWorker::send_snapshot(std::uint64_t id) {
  publish_cache_events();
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  ++context_.tally.snapshots;
  if (const auto late = std::exchange(overtaken_, std::nullopt)) broadcast(*late);
  auto stored = scheduler_.cache().snapshot(8);
  constexpr std::size_t per_part = 3;
  const std::uint64_t sequence = event_sequence_;
  const std::uint64_t snapshot_epoch = epoch_;
  std::uint32_t part = 0;
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(stored.size(), begin + per_part);
    protocol::Snapshot snapshot{snapshot_epoch, sequence, part++, end == stored.size(), {}};
    for (std::size_t i = begin; i < end; ++i) snapshot.stored.push_back(std::move(stored[i]));
    begin = end;
    send(found->second, std::move(snapshot));
    if (renews_in_snapshot_ && begin < stored.size()) {
      // The rest of the old one may come, or not.
      renews_in_snapshot_ = false;
      renew_epoch();
      if (events_.chance(0.5)) return;
    }
  } while (begin < stored.size());
}

// What was found in the cache is the beginning of another request of the same tenant that this worker has had.
void SimWorker::check_cached_tokens(const protocol::ChoiceStep& step) {
  const RequestPlan& request = plan_.requests[step.request.low - 1];
  // Its own blocks may be found by a later attempt, after a preemption, and by its other choices.
  const bool may_find_own = step.attempt > 0 || preempted_ > 0 || request.choices > 1;
  if (!step.usage || step.usage->transferred_tokens > 0 || may_find_own) return;
  std::size_t longest = 0;
  for (const std::uint64_t other : seen_[request.salt]) {
    if (other == step.request.low - 1) continue;
    const auto& prompt = plan_.requests[other].prompt;
    const std::size_t length = std::min(prompt.size(), request.prompt.size());
    std::size_t common = 0;
    while (common < length && prompt[common] == request.prompt[common]) ++common;
    longest = std::max(longest, common);
  }
  if (step.usage->cached_tokens <= longest) return;
  violation("request " + std::to_string(step.request.low - 1) + " found " + std::to_string(step.usage->cached_tokens) +
            " cached tokens; its tenant had at most " + std::to_string(longest) + " in common here");
}

// A step writes only into blocks that are held by that sequence alone, and reads only held ones.
void SimWorker::check_batch(const worker::StepBatch& batch) {
  const worker::KvCache& cache = scheduler_.cache();
  std::map<BlockIndex, std::size_t> writers;
  std::set<BlockIndex> copied;
  for (const auto& copy : batch.copies) copied.insert(copy.from);
  if (batch.sequences.size() > shape_.sequences_max) violation("more sequences in a step than allowed");
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const auto& sequence = batch.sequences[i];
    tokens += sequence.tokens.size();
    for (const BlockIndex block : sequence.blocks) {
      if (cache.references(block) == 0) violation("a step reads block " + std::to_string(block) + ", which is free");
    }
    const std::size_t first = sequence.position / plan_.block_tokens;
    const std::size_t last = (sequence.position + sequence.tokens.size() - 1) / plan_.block_tokens;
    for (std::size_t b = first; b <= last && b < sequence.blocks.size(); ++b) {
      const BlockIndex block = sequence.blocks[b];
      if (!writers.emplace(block, i).second) violation("two sequences write into block " + std::to_string(block));
      const bool is_shared = cache.references(block) > 1 && !copied.contains(block);
      if (is_shared) violation("a step writes into block " + std::to_string(block) + ", which is shared");
    }
  }
  if (tokens > plan_.model.limits.step_tokens_max) violation("a step has more tokens than allowed");
}

void SimWorker::check_cache() {
  if (++turns_ % 16 != 0) return;
  const std::string wrong = scheduler_.cache().find_contradiction();
  if (!wrong.empty()) violation("the block ledger contradicts itself: " + wrong);
  const auto gauges = driver_.machine().gauges(clock_.now());
  const std::uint64_t pool_bytes = shape_.blocks * plan_.model.geometry.block_bytes();
  if (gauges.pinned_bytes > pool_bytes || gauges.reserved_bytes > pool_bytes) {
    violation("transfers hold more bytes than the pool has");
  }
  if (gauges.bytes_in_flight > plan_.transfer.window_bytes * plan_.workers.size()) {
    violation("more bytes are read at once than allowed");
  }
}

void SimWorker::check_quiet() {
  check_cache();
  const worker::KvCache& cache = scheduler_.cache();
  const std::string wrong = cache.find_contradiction();
  if (!wrong.empty()) violation("at rest the block ledger contradicts itself: " + wrong);
  if (cache.available() != cache.blocks()) {
    violation("at rest " + std::to_string(cache.blocks() - cache.available()) + " of " +
              std::to_string(cache.blocks()) + " blocks are held, " + std::to_string(cache.pinned()) + " pinned");
  }
  const protocol::Load load = scheduler_.load();
  if (load.running + load.waiting > 0) {
    violation("at rest " + std::to_string(load.running) + " choices run and " + std::to_string(load.waiting) + " wait");
  }
  if (!owners_.empty()) violation("at rest it holds " + std::to_string(owners_.size()) + " requests");
  const auto gauges = driver_.machine().gauges(clock_.now());
  if (gauges.sends_live + gauges.receives_live + gauges.reserved_bytes + gauges.bytes_in_flight > 0) {
    violation("at rest transfers live: sends " + std::to_string(gauges.sends_live) + ", receives " +
              std::to_string(gauges.receives_live) + ", reserved bytes " + std::to_string(gauges.reserved_bytes) +
              ", in flight " + std::to_string(gauges.bytes_in_flight));
  }
}

}  // namespace penstock::sim
