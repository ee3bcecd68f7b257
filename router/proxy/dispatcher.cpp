#include "router/proxy/dispatcher.hpp"

#include <algorithm>

namespace penstock::router {
namespace {

constexpr Duration timers_interval = std::chrono::milliseconds(250);
constexpr std::int32_t migration_priority = 1'000'000;  // a client already watches it

template <class... Handlers>
struct Overload : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

std::uint32_t longest_output(const RequestState& state) {
  std::uint32_t longest = 0;
  for (const auto& choice : state.spec().choices) longest = std::max(longest, state.output_tokens(choice.index));
  return longest;
}

}  // namespace

Dispatcher::Dispatcher(ModelRegistry& registry, const Clock& clock, Random& random, RetrySettings retries,
                       ProxyProbe probe, std::size_t decisions_max)
    : registry_(registry),
      clock_(clock),
      random_(random),
      retry_budget_(retries),
      probe_(std::move(probe)),
      decisions_(decisions_max) {}

// ---- What the call asks ----

void Dispatcher::start(Sequence& sequence) {
  living_.emplace(sequence.state.id(), &sequence);
  retry_budget_.on_request();
  Actions actions;
  sequence.state.start(clock_.now(), actions);
  carry_out(sequence, actions);
}

void Dispatcher::stop_string(Sequence& sequence, std::uint32_t choice, std::uint32_t tokens_kept) {
  Actions actions;
  sequence.state.on_stop_string(clock_.now(), choice, tokens_kept, actions);
  carry_out(sequence, actions);
}

void Dispatcher::cancel(Sequence& sequence) {
  Actions actions;
  sequence.state.on_client_gone(clock_.now(), actions);
  carry_out(sequence, actions);
}

// ---- What the machine wants ----

void Dispatcher::carry_out(Sequence& sequence, Actions& actions) {
  for (auto& action : actions) {
    std::visit(Overload{
                   [&](WantPlace& want) { place(sequence, want); },
                   [&](SendTo& message) { send(sequence, message); },
                   [&](Deliver& delivery) { deliver(sequence, std::move(delivery.step)); },
                   [&](PrefillDone&) { sequence.model.fleet.on_prefill_finished(sequence.dispatch); },
                   [&](Ended& ended) { finish(sequence, ended); },
               },
               action);
  }
}

void Dispatcher::place(Sequence& sequence, const WantPlace& want) {
  if (sequence.dispatch != 0) {
    sequence.model.fleet.on_aborted(sequence.dispatch);
    sequence.dispatch = 0;
  }
  // It may wait already: while a new decode worker was looked for, the prefill worker that holds its KV was lost.
  leave_queue(sequence);
  sequence.wanted = want;
  switch (want.kind) {
    case PlaceKind::first:
      break;
    case PlaceKind::again:
      probe_.refusals_total.increment();
      break;
    case PlaceKind::retry:
      probe_.retries_total.increment();
      if (!retry_budget_.try_retry(sequence.state.retries() - 1)) {
        return refuse(sequence,
                      make_error(ErrorCode::unavailable,
                                 "the worker failed, and too many requests are "
                                 "being retried already"),
                      std::chrono::seconds(1));
      }
      break;
    case PlaceKind::migrate:
      probe_.migrations_total.increment();
      break;
    case PlaceKind::reoffer:
      probe_.reoffers_total.increment();
      break;
  }
  // A newcomer must not overtake those that wait.
  if (want.kind == PlaceKind::first && sequence.model.queue.size() > 0) {
    return enqueue(sequence);
  }
  if (!choose(sequence)) enqueue(sequence);
}

bool Dispatcher::choose(Sequence& sequence) {
  const RequestState& state = sequence.state;
  PlacementRequest request;
  const std::uint32_t output = longest_output(state);
  request.prompt_tokens = static_cast<std::uint32_t>(state.spec().prompt.size()) + output;
  request.blocks = sequence.blocks;
  request.output_tokens_max = state.spec().sampling.tokens_max - std::min(state.spec().sampling.tokens_max, output);
  request.choices = static_cast<std::uint32_t>(state.spec().choices.size());
  request.split = sequence.wanted->split == SplitUse::allowed ? Split::allowed : Split::forbidden;
  request.excluded = state.failed_workers();
  const TimePoint begin = clock_.now();
  Placement placement = sequence.model.fleet.choose(request, begin);
  const Duration took = clock_.now() - begin;
  probe_.decision_seconds.observe(took);
  switch (placement.outcome) {
    case Outcome::placed:
      dispatch(sequence, request, std::move(placement), took);
      return true;
    case Outcome::must_queue:
      return false;
    case Outcome::rejected:
      refuse(sequence, placement.error, placement.retry_after);
      return true;
  }
  return true;
}

void Dispatcher::dispatch(Sequence& sequence, const PlacementRequest& request, Placement placement, Duration took) {
  const TimePoint now = clock_.now();
  if (sequence.queue_id != 0) {
    sequence.model.queue.pop(sequence.queue_id, now);
    queued_.erase(sequence.queue_id);
    sequence.queue_id = 0;
  }
  Fleet& fleet = sequence.model.fleet;
  const WorkerInfo* worker = fleet.find(placement.worker);
  const WorkerInfo* prefill = placement.prefill ? fleet.find(*placement.prefill) : nullptr;
  const WantPlace want = *sequence.wanted;
  AttemptPlace place;
  place.decode = worker->instance;
  place.decode_address = worker->kv_address;
  if (want.kind == PlaceKind::reoffer) {
    // The KV is at that worker already, if the one chosen can read it from there.
    for (const auto& view : fleet.workers(now)) {
      if (view.info.instance != want.prefill || view.info.instance == worker->instance) continue;
      if (!view.info.transfer_groups.can_exchange(worker->transfer_groups) || worker->kv_address.empty()) continue;
      place.prefill = view.info.instance;
      place.prefill_address = view.info.kv_address;
    }
  } else if (prefill != nullptr) {
    place.prefill = prefill->instance;
    place.prefill_address = prefill->kv_address;
    probe_.split_total.increment();
  }
  sequence.dispatch = fleet.on_dispatched(request, placement, now);
  if (!sequence.route || decisions_.is_on()) {
    auto decision = std::make_shared<Decision>();
    decision->client_request_id = sequence.client_request_id;
    decision->request = sequence.state.id();
    decision->model = sequence.model.name;
    decision->kind = want.kind;
    decision->at = wall_now();
    decision->took = took;
    decision->prompt_tokens = request.prompt_tokens;
    decision->worker = worker->address;
    if (prefill != nullptr) decision->prefill = prefill->address;
    decision->placement = std::move(placement);
    shorten(decision->placement);
    for (const auto& candidate : decision->placement.candidates) {
      decision->candidates.push_back(address_of(sequence.model, candidate.worker));
    }
    if (!sequence.route) sequence.route = decision;
    decisions_.add(std::move(decision));
  }
  sequence.wanted.reset();
  if (want.kind == PlaceKind::first) probe_.queue_seconds.observe(now - sequence.arrived);
  Actions actions;
  sequence.state.on_placed(now, place, actions);
  carry_out(sequence, actions);
}

std::string Dispatcher::address_of(const ServedModel& model, WorkerRef worker) const {
  const WorkerInfo* info = model.fleet.find(worker);
  return info == nullptr ? std::string("?") : info->address;
}

void Dispatcher::refuse(Sequence& sequence, Error error, Duration retry_after) {
  leave_queue(sequence);
  sequence.wanted.reset();
  Actions actions;
  sequence.state.on_not_placed(clock_.now(), std::move(error), jittered(retry_after), actions);
  carry_out(sequence, actions);
}

Duration Dispatcher::jittered(Duration duration) {
  return duration + duration * static_cast<Duration::rep>(random_.below(512)) / 1024;
}

void Dispatcher::enqueue(Sequence& sequence) {
  const TimePoint now = clock_.now();
  const std::size_t prompt_tokens = sequence.state.spec().prompt.size();
  const std::size_t cached_tokens = sequence.model.fleet.longest_match(sequence.blocks, now);
  Waiting waiting;
  waiting.id = next_queue_id_++;
  waiting.tenant = sequence.tenant;
  waiting.priority = priority_class(sequence.wanted->kind == PlaceKind::first ? sequence.priority : migration_priority);
  waiting.uncached_tokens = prompt_tokens - std::min(prompt_tokens, cached_tokens);
  waiting.bytes = prompt_tokens * sizeof(TokenId) + sizeof(Sequence);
  waiting.deadline = sequence.deadline;
  if (auto refused = sequence.model.queue.push(waiting, now)) {
    return refuse(sequence, refused->error, refused->retry_after);
  }
  sequence.queue_id = waiting.id;
  queued_.emplace(waiting.id, &sequence);
  pump(sequence.model);
}

void Dispatcher::leave_queue(Sequence& sequence) {
  if (sequence.queue_id == 0) return;
  sequence.model.queue.remove(sequence.queue_id);
  queued_.erase(sequence.queue_id);
  sequence.queue_id = 0;
}

void Dispatcher::pump(ServedModel& model) {
  if (is_pumping_) return;
  is_pumping_ = true;
  // Each turn takes the head out (placed, or ended) or ends the loop.
  while (auto head = model.queue.front()) {
    auto found = queued_.find(*head);
    if (found == queued_.end()) {
      model.queue.remove(*head);
    } else if (!choose(*found->second)) {
      break;
    }
  }
  is_pumping_ = false;
}

void Dispatcher::send(Sequence& sequence, const SendTo& message) {
  if (std::holds_alternative<protocol::Abort>(message.message)) probe_.aborts_sent_total.increment();
  if (sender_->send(message.worker, message.message)) return;
  const bool is_start = std::holds_alternative<protocol::Generate>(message.message) ||
                        std::holds_alternative<protocol::Prefill>(message.message) ||
                        std::holds_alternative<protocol::Expect>(message.message) ||
                        std::holds_alternative<protocol::Reoffer>(message.message);
  if (!is_start) return;
  protocol::RequestError error;
  error.request = sequence.state.id();
  error.attempt = sequence.state.spec().attempt;
  error.error = make_error(ErrorCode::unavailable, "the request could not be sent to its worker");
  Actions actions;
  sequence.state.on_request_error(clock_.now(), message.worker, error, actions);
  carry_out(sequence, actions);
}

void Dispatcher::deliver(Sequence& sequence, protocol::ChoiceStep&& step) {
  const TimePoint now = clock_.now();
  if (!step.tokens.empty()) {
    Fleet& fleet = sequence.model.fleet;
    if (!sequence.last_step) {
      probe_.time_to_first_token_seconds.observe(now - sequence.arrived);
      fleet.on_first_token(sequence.dispatch, step.usage);
    } else {
      probe_.inter_token_latency_seconds.observe(now - *sequence.last_step);
    }
    sequence.last_step = now;
    fleet.on_tokens(sequence.dispatch, static_cast<std::uint32_t>(step.tokens.size()));
  }
  sequence.sink.on_tokens(sequence, std::move(step));
}

void Dispatcher::finish(Sequence& sequence, const Ended& ended) {
  leave_queue(sequence);
  living_.erase(sequence.state.id());
  const RequestUsage usage = sequence.state.usage();
  if (sequence.dispatch != 0) {
    if (std::holds_alternative<Completed>(ended.outcome)) {
      sequence.model.fleet.on_finished(sequence.dispatch);
    } else {
      sequence.model.fleet.on_aborted(sequence.dispatch);
    }
    sequence.dispatch = 0;
    probe_.prompt_tokens_total.increment(usage.prompt_tokens);
  }
  probe_.cached_tokens_total.increment(usage.cached_tokens);
  probe_.output_tokens_total.increment(usage.completion_tokens);
  probe_.prompt_tokens.observe(static_cast<double>(usage.prompt_tokens));
  probe_.output_tokens.observe(static_cast<double>(usage.completion_tokens));
  probe_.token_gaps_total.increment(sequence.state.gaps());
  probe_.token_repeats_total.increment(sequence.state.repeats());
  sequence.sink.on_ended(sequence, ended);
  if (sequence.model.queue.size() > 0) pump(sequence.model);
}

// ---- What workers say ----

void Dispatcher::on_step(InstanceId worker, protocol::Step&& step) {
  for (const auto& progress : step.progress) on_progress(worker, progress);
  const TimePoint now = clock_.now();
  for (auto& one : step.choices) {
    auto found = living_.find(one.request);
    if (found == living_.end()) continue;
    Sequence& sequence = *found->second;
    Actions actions;
    sequence.state.on_step(now, worker, std::move(one), actions);
    carry_out(sequence, actions);
  }
}

void Dispatcher::on_progress(InstanceId worker, const protocol::Progress& progress) {
  const auto found = living_.find(progress.request);
  if (found != living_.end()) found->second->state.on_progress(clock_.now(), worker, progress);
}

void Dispatcher::on_request_error(InstanceId worker, const protocol::RequestError& error) {
  auto found = living_.find(error.request);
  if (found == living_.end()) return;
  Sequence& sequence = *found->second;
  Actions actions;
  sequence.state.on_request_error(clock_.now(), worker, error, actions);
  carry_out(sequence, actions);
}

void Dispatcher::on_transfer_status(InstanceId worker, const protocol::TransferStatus& status) {
  auto found = living_.find(status.request);
  if (found == living_.end()) return;
  Sequence& sequence = *found->second;
  Actions actions;
  sequence.state.on_transfer_status(clock_.now(), worker, status, actions);
  carry_out(sequence, actions);
}

void Dispatcher::on_worker_lost(InstanceId worker) {
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : living_) ids.push_back(id);
  for (RequestId id : ids) {
    auto found = living_.find(id);
    if (found == living_.end()) continue;
    Sequence& sequence = *found->second;
    Actions actions;
    sequence.state.on_worker_lost(clock_.now(), worker, actions);
    carry_out(sequence, actions);
  }
}

void Dispatcher::on_capacity(ServedModel& model) {
  if (model.queue.size() > 0) pump(model);
}

void Dispatcher::tick() {
  const TimePoint now = clock_.now();
  double waiting = 0, tokens = 0;
  for (const auto& [name, model] : registry_.models()) {
    for (WorkerRef worker : model->fleet.tick(now)) sender_->send(worker, *model, protocol::SnapshotRequest{});
    for (std::uint64_t id : model->queue.expire(now)) {
      auto found = queued_.find(id);
      if (found == queued_.end()) continue;
      Sequence& sequence = *found->second;
      queued_.erase(found);
      sequence.queue_id = 0;
      // Its own deadline, or the queue's? Only the latter is worth another try.
      const Refused overdue = model->queue.overdue();
      const bool is_too_late = sequence.deadline && *sequence.deadline <= now;
      refuse(sequence, overdue.error, is_too_late ? Duration{} : overdue.retry_after);
    }
    if (model->queue.size() > 0) pump(*model);
    waiting += static_cast<double>(model->queue.size());
    tokens += static_cast<double>(model->queue.tokens());
  }
  probe_.queue_requests.set(waiting);
  probe_.queue_tokens.set(tokens);
  if (now < next_timers_) return;
  next_timers_ = now + timers_interval;
  std::vector<RequestId> due;
  for (const auto& [id, sequence] : living_) {
    const auto timer = sequence->state.next_timer();
    if (timer && *timer <= now) due.push_back(id);
  }
  for (RequestId id : due) {
    auto found = living_.find(id);
    if (found == living_.end()) continue;
    Sequence& sequence = *found->second;
    Actions actions;
    sequence.state.on_timer(now, actions);
    carry_out(sequence, actions);
  }
}

}  // namespace penstock::router
