#include "tests/sim/router.hpp"

#include "common/protocol/ticket.hpp"
#include "tests/sim/overload.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;

namespace {

constexpr Duration tick_interval = 50ms;
constexpr Duration ping_interval = 500ms;
constexpr Duration suspect_after = 1s;
constexpr Duration silence_max = 2s;
constexpr Duration backoff_max = 1s;
constexpr std::uint64_t index_bytes_max = 8 << 20;

router::RegistrySettings registry_settings(const Plan& plan, std::uint64_t seed) {
  router::RegistrySettings settings;
  settings.fleet.policy.split_tokens_min = plan.split_tokens_min;
  settings.fleet.predicted_life = 500ms;
  settings.fleet.join_grace = 300ms;
  settings.fleet.snapshot_wait = 1s;
  settings.fleet.index_bytes_max = index_bytes_max;
  settings.queue.requests_max = plan.bug == Bug::queue_unbounded ? 10'000 : plan.queue_max;
  settings.queue.wait_max = 10s;
  settings.seed = seed;
  return settings;
}

}  // namespace

SimRouter::SimRouter(RouterContext context, std::uint32_t index, std::uint64_t start)
    : context_(context),
      plan_(context.plan),
      events_(context.events),
      index_(index),
      issuer_(start + 1),
      started_(events_.now()),
      random_(events_.random().next()),
      hasher_(plan_.block_tokens),
      registry_(registry_settings(plan_, random_.next())),
      dispatcher_(registry_, events_.clock(), random_, {}, {}, 0),
      ticket_([this](const router::TransferParties& parties) { return make_ticket(parties); }),
      links_(plan_.workers.size()),
      process_(events_) {
  dispatcher_.set_sender(*this);
  for (std::uint32_t slot = 0; slot < links_.size(); ++slot) connect(slot);
  tick();
}

SimRouter::~SimRouter() {
  for (auto& call : calls_) call->cut();
  for (auto& link : links_) {
    if (link.wire) drop_router_end(events_, link.wire);
  }
}

std::string SimRouter::make_ticket(const router::TransferParties& parties) const {
  protocol::Ticket ticket;
  ticket.transfer = parties.transfer;
  ticket.attempt = parties.attempt;
  ticket.prefill = parties.prefill;
  ticket.decode = parties.decode;
  ticket.issuer = issuer_;
  ticket.issued_ms = static_cast<std::uint64_t>((events_.now() - started_) / 1ms);
  return protocol::make_ticket("the key of the simulation", ticket);
}

// ---- Connections ----

void SimRouter::connect(std::uint32_t slot) {
  if (slot >= context_.workers.size() || !context_.workers[slot]) return retry_later(slot);
  Link& link = links_[slot];
  link.wire = std::make_shared<Wire>();
  if (events_.chance(0.2)) link.wire->lag_max = 60ms;  // a congested path: the other workers' words come first
  link.last_frame = link.last_ping = events_.now();
  link.wire->router = &process_;
  link.wire->to_router = [this, slot](protocol::WorkerMessage message) { on_message(slot, std::move(message)); };
  link.wire->router_closed = [this, slot, wire = std::weak_ptr(link.wire)] {
    if (links_[slot].wire == wire.lock()) lose(slot);
  };
  context_.workers[slot]->accept(link.wire);
  protocol::Hello hello;
  hello.router_id = std::to_string(index_);
  hello.hash_probe_tokens = std::vector<TokenId>(plan_.block_tokens, 1);
  send_to_worker(events_, link.wire, hello);
}

void SimRouter::retry_later(std::uint32_t slot) {
  Link& link = links_[slot];
  process_.after(events_.between(link.backoff / 2, link.backoff), [this, slot] {
    if (!links_[slot].wire) connect(slot);
  });
  link.backoff = std::min(link.backoff * 2, backoff_max);
}

void SimRouter::lose(std::uint32_t slot) {
  Link& link = links_[slot];
  drop_router_end(events_, link.wire);
  link.wire.reset();
  const auto lost = std::exchange(link.instance, std::nullopt);
  if (lost) {
    router::ServedModel& model = *registry_.find("fake");
    model.fleet.on_disconnect(link.ref);
    --model.connections;
    on_worker_lost(*lost);
  }
  link.is_suspect = false;
  if (plan_.bug != Bug::reconnect_lost) retry_later(slot);
}

void SimRouter::cut_wire(std::uint32_t slot, CutKind kind) {
  Link& link = links_[slot];
  if (!link.wire) return;
  ++context_.tally.cuts;
  link.wire->is_cut = true;
  const WirePtr wire = link.wire;
  // Nobody is told of a black hole; the worker gives an idle connection up after some time.
  const Duration lag = kind == CutKind::reset ? events_.between(1ms, 50ms) : 5s;
  if (wire->worker != nullptr) {
    wire->worker->after(lag, [wire] {
      if (wire->worker_closed) wire->worker_closed();
    });
  }
  if (kind == CutKind::blackhole) return;
  process_.after(events_.between(1ms, 50ms), [this, slot, wire] {
    if (links_[slot].wire == wire) lose(slot);
  });
}

void SimRouter::pause_reading(std::uint32_t slot, Duration length) {
  Link& link = links_[slot];
  if (link.wire) link.wire->paused_until = events_.now() + length;
}

void SimRouter::enter(std::uint32_t slot, const protocol::Welcome& welcome) {
  Link& link = links_[slot];
  router::ServedModel* model = registry_.admit(welcome, 0);
  const auto expected = hasher_.hash_blocks(hasher_.root("", ""), std::vector<TokenId>(plan_.block_tokens, 1));
  const auto verdict = model->fleet.on_welcome(welcome, "worker-" + std::to_string(slot), expected, events_.now());
  if (verdict.refusal == router::Refusal::duplicate_instance) return lose(slot);
  if (verdict.refusal != router::Refusal::none) {
    context_.violations.add("router " + std::to_string(index_) + ": a worker was refused: " + verdict.detail);
  }
  ++model->connections;
  link.instance = welcome.instance;
  link.epoch = welcome.epoch;
  link.ref = verdict.worker;
  link.connected_at = events_.now();
  link.backoff = 100ms;
  ask_snapshot(slot, verdict.snapshot);
}

void SimRouter::ask_snapshot(std::uint32_t slot, router::SnapshotNeed need) {
  if (need == router::SnapshotNeed::request) send_to_worker(events_, links_[slot].wire, protocol::SnapshotRequest{});
}

void SimRouter::on_message(std::uint32_t slot, protocol::WorkerMessage message) {
  Link& link = links_[slot];
  const TimePoint now = events_.now();
  link.last_frame = now;
  if (auto* welcome = std::get_if<protocol::Welcome>(&message)) return enter(slot, *welcome);
  if (!link.instance) return;
  router::ServedModel& model = *registry_.find("fake");
  if (std::exchange(link.is_suspect, false)) model.fleet.on_alive(link.ref);
  const InstanceId instance = *link.instance;
  std::visit(
      Overload{
          [&](protocol::Welcome&) {},
          [&](protocol::Blob&) {},
          [&](protocol::Step& step) { on_step(instance, std::move(step)); },
          [&](protocol::CacheEvents& events) {
            if (plan_.bug == Bug::event_order_ignored) events.sequence = ++link.events;
            if (plan_.bug == Bug::epoch_ignored) events.epoch = link.epoch;
            ask_snapshot(slot, model.fleet.on_cache_events(link.ref, events, now));
          },
          [&](protocol::Snapshot& part) { ask_snapshot(slot, model.fleet.on_snapshot(link.ref, part, now)); },
          [&](protocol::Load& load) {
            model.fleet.on_load(link.ref, load, now);
            dispatcher_.on_capacity(model);
          },
          [&](protocol::RequestError& error) { on_request_error(instance, error); },
          [&](protocol::TransferStatus& status) { on_transfer_status(instance, status); },
          [&](protocol::Goodbye&) { model.fleet.on_draining(link.ref); },
          [&](protocol::Pong&) {},
          [&](protocol::ProtocolError& error) { context_.violations.add("protocol error: " + error.error.message); },
      },
      message);
}

void SimRouter::look_after(std::uint32_t slot) {
  Link& link = links_[slot];
  if (!link.wire) return;
  const TimePoint now = events_.now();
  if (now - link.last_ping >= ping_interval) {
    link.last_ping = now;
    send_to_worker(events_, link.wire, protocol::Ping{1});
  }
  if (now - link.last_frame >= silence_max) return lose(slot);
  if (now - link.last_frame >= suspect_after && link.instance && !link.is_suspect) {
    link.is_suspect = true;
    registry_.find("fake")->fleet.on_suspect(link.ref);
  }
}

void SimRouter::tick() {
  dispatcher_.tick();
  for (std::uint32_t slot = 0; slot < links_.size(); ++slot) look_after(slot);
  check_running();
  process_.after(tick_interval, [this] { tick(); });
}

// ---- Requests ----

void SimRouter::begin(const RequestPlan& request, std::uint32_t index) {
  router::ServedModel* model = registry_.find("fake");
  if (model == nullptr) {
    // No worker has ever been here: the HTTP side says 503 before there is a call.
    ++context_.tally.requests;
    ++context_.tally.failed;
    return;
  }
  auto blocks = hasher_.hash_blocks(hasher_.root(request.salt, ""), request.prompt);
  calls_.push_back(std::make_unique<SimCall>(plan_, request, index, events_, context_.violations, context_.tally,
                                             dispatcher_, *model, std::move(blocks), ticket_));
  calls_.back()->start();
}

bool SimRouter::send(InstanceId instance, const protocol::RouterMessage& message) {
  if (plan_.bug == Bug::abort_lost && std::holds_alternative<protocol::Abort>(message)) return true;
  if (std::holds_alternative<protocol::Prefill>(message)) ++context_.tally.splits;
  if (const auto* reoffer = std::get_if<protocol::Reoffer>(&message)) {
    ++context_.tally.reoffers;
    if (SimCall* call = find_call(reoffer->request)) call->note_reoffer();
  }
  if (const auto* generate = std::get_if<protocol::Generate>(&message)) decoders_[generate->spec.request] = instance;
  if (const auto* expect = std::get_if<protocol::Expect>(&message)) decoders_[expect->spec.request] = instance;
  for (auto& link : links_) {
    if (link.instance != instance) continue;
    send_to_worker(events_, link.wire, message);
    return true;
  }
  return false;
}

bool SimRouter::send(router::WorkerRef worker, const router::ServedModel&, const protocol::RouterMessage& message) {
  for (auto& link : links_) {
    if (!link.instance || link.ref != worker) continue;
    send_to_worker(events_, link.wire, message);
    return true;
  }
  return false;
}

SimCall* SimRouter::find_call(RequestId request) {
  for (auto& call : calls_) {
    if (call->id() == request) return call.get();
  }
  return nullptr;
}

// Builds a mistake into what a worker says; returns who is taken for its sender.
InstanceId SimRouter::spoil(protocol::ChoiceStep& step, InstanceId worker) {
  SimCall* call = find_call(step.request);
  if (call == nullptr || call->is_ended()) return worker;
  if (plan_.bug == Bug::positions_ignored) step.position = call->sequence().state.output_tokens(step.choice);
  if (plan_.bug != Bug::stale_accepted || step.attempt == call->sequence().state.spec().attempt) return worker;
  step.attempt = call->sequence().state.spec().attempt;
  return decoders_[step.request];
}

void SimRouter::on_step(InstanceId worker, protocol::Step&& step) {
  if (!step.progress.empty()) {
    protocol::Step signs;
    signs.progress = std::move(step.progress);
    dispatcher_.on_step(worker, std::move(signs));
  }
  for (auto& one : step.choices) {
    const InstanceId sender = spoil(one, worker);
    protocol::Step single;
    single.choices.push_back(std::move(one));
    dispatcher_.on_step(sender, std::move(single));
  }
}

void SimRouter::on_request_error(InstanceId worker, const protocol::RequestError& error) {
  dispatcher_.on_request_error(worker, error);
}

void SimRouter::on_transfer_status(InstanceId worker, const protocol::TransferStatus& status) {
  dispatcher_.on_transfer_status(worker, status);
}

void SimRouter::on_worker_lost(InstanceId worker) {
  dispatcher_.on_worker_lost(worker);
}

void SimRouter::on_capacity(router::ServedModel& model) {
  dispatcher_.on_capacity(model);
}

// ---- What is looked at ----

bool SimRouter::knows(RequestId request, TimePoint ended_after) const {
  for (const auto& call : calls_) {
    if (call->id() == request) return !call->is_ended() || call->ended_at() >= ended_after;
  }
  return false;
}

std::optional<TimePoint> SimRouter::connected_at(std::uint32_t slot) const {
  if (!links_[slot].instance) return std::nullopt;
  return links_[slot].connected_at;
}

void SimRouter::check_running() {
  for (auto& call : calls_) call->check_overdue(events_.now());
  const router::ServedModel* model = registry_.find("fake");
  if (model == nullptr) return;
  for (const auto priority :
       {router::PriorityClass::high, router::PriorityClass::normal, router::PriorityClass::bulk}) {
    if (model->queue.size(priority) > plan_.queue_max) context_.violations.add("a queue is longer than allowed");
    if (model->queue.size(priority) > 0) ++context_.tally.queued;
  }
  const auto stats = model->fleet.stats();
  if (stats.index_bytes > index_bytes_max) context_.violations.add("the index has more bytes than allowed");
  if (dispatcher_.living() > calls_.size()) context_.violations.add("the dispatcher holds more than there are calls");
}

void SimRouter::check_quiet() {
  const std::string me = "router " + std::to_string(index_) + ": ";
  for (auto& call : calls_) call->check_at_end();
  const router::ServedModel* model = registry_.find("fake");
  if (model == nullptr) return context_.violations.add(me + "it has never met a worker");
  if (dispatcher_.living() > 0) context_.violations.add(me + "the dispatcher holds ended requests");
  if (model->queue.size() > 0) context_.violations.add(me + "at rest the queue is not empty");
  const auto stats = model->fleet.stats();
  if (stats.requests_in_flight > 0) {
    context_.violations.add(me + "at rest the fleet counts " + std::to_string(stats.requests_in_flight) +
                            " requests in flight");
  }
  for (const auto& view : model->fleet.workers(events_.now())) {
    if (view.requests_in_flight > 0) context_.violations.add(me + "at rest a worker is charged for requests");
    for (std::uint32_t slot = 0; slot < links_.size(); ++slot) {
      if (links_[slot].instance != view.info.instance || !context_.workers[slot]) continue;
      const std::uint32_t cached = context_.workers[slot]->cached_blocks();
      if (view.index_synced && view.blocks_indexed == cached) continue;
      context_.violations.add(me + "at rest the index has " + std::to_string(view.blocks_indexed) +
                              " blocks of worker " + std::to_string(slot) + (view.index_synced ? "" : " (not synced)") +
                              ", which has " + std::to_string(cached));
    }
  }
  for (std::uint32_t slot = 0; slot < links_.size(); ++slot) {
    if (!links_[slot].instance)
      context_.violations.add(me + "at rest worker " + std::to_string(slot) + " is not connected");
  }
}

}  // namespace penstock::sim
