#include "tests/sim/world.hpp"

#include "tests/sim/router.hpp"

namespace penstock::sim {

using namespace std::chrono_literals;

namespace {

// After the last fault everything must end within this: attempts times the longest time without progress.
constexpr Duration liveness_max = 60s;
// After the last request everything must be free: the longest pin and the tombstones' time, with room.
constexpr Duration settle = 4s;
constexpr std::uint64_t events_max = 5'000'000;

}  // namespace

World::World(Plan plan)
    : plan_(std::move(plan)),
      events_(plan_.seed),
      fabric_(events_, plan_.fabric),
      workers_(plan_.workers.size()),
      routers_(plan_.routers),
      disturbed_until_(plan_.workers.size()),
      idle_work_(plan_.workers.size()) {
  for (std::uint32_t slot = 0; slot < workers_.size(); ++slot) start_worker(slot);
  for (std::uint32_t index = 0; index < routers_.size(); ++index) start_router(index);
  schedule();
}

World::~World() = default;

SimWorker* World::find_worker(const std::string& kv_address) {
  for (std::uint32_t slot = 0; slot < workers_.size(); ++slot) {
    if (SimWorker::kv_address_of(slot) == kv_address) return workers_[slot].get();
  }
  return nullptr;
}

SimWorker* World::find_worker(InstanceId instance) {
  for (auto& worker : workers_) {
    if (worker && worker->instance() == instance) return worker.get();
  }
  return nullptr;
}

void World::start_worker(std::uint32_t slot) {
  workers_[slot] = std::make_unique<SimWorker>(WorkerContext{plan_, events_, fabric_, *this, violations_, tally_}, slot,
                                               InstanceId{events_.random().next(), ++instances_});
}

void World::start_router(std::uint32_t index) {
  routers_[index] = std::make_unique<SimRouter>(RouterContext{plan_, events_, violations_, tally_, workers_}, index,
                                                events_.random().next());
}

void World::schedule() {
  for (std::uint32_t i = 0; i < plan_.requests.size(); ++i) {
    events_.after(plan_.requests[i].at - events_.now(), [this, i] {
      const RequestPlan& request = plan_.requests[i];
      if (routers_[request.router]) return routers_[request.router]->begin(request, i);
      if (request.must_complete) violations_.add("a router is still dead, long after the last fault");
      ++tally_.requests;
      ++tally_.cut;
    });
  }
  for (const FaultPlan& fault : plan_.faults) {
    events_.after(fault.at - events_.now(), [this, &fault] { break_something(fault); });
  }
  events_.after(plan_.quiet_at - events_.now(), [this] { calm(); });
  events_.after(100ms, [this] { check_held(); });
}

void World::break_something(const FaultPlan& fault) {
  const std::uint32_t slot = fault.worker;
  const auto router = static_cast<std::uint32_t>(fault.other % routers_.size());
  switch (fault.kind) {
    case FaultKind::crash:
      return crash(slot, fault.length);
    case FaultKind::freeze:
      return freeze(slot, fault.length);
    case FaultKind::slow:
      if (!workers_[slot]) return;
      workers_[slot]->set_slowness(15);
      disturbed_until_[slot] = std::max(disturbed_until_[slot], events_.now() + fault.length + 1s);
      events_.after(fault.length, [this, slot] {
        if (workers_[slot]) workers_[slot]->set_slowness(1);
      });
      return;
    case FaultKind::reset:
    case FaultKind::blackhole:
      if (!routers_[router]) return;
      return routers_[router]->cut_wire(slot, fault.kind == FaultKind::reset ? CutKind::reset : CutKind::blackhole);
    case FaultKind::partition:
      if (slot == fault.other) return;
      fabric_.cut(slot, fault.other);
      events_.after(fault.length, [this, slot, other = fault.other] { fabric_.mend(slot, other); });
      return;
    case FaultKind::drain:
      return drain(slot, fault.length);
    case FaultKind::epoch:
      if (!workers_[slot]) return;
      if (fault.length < 400ms) return workers_[slot]->renew_epoch();
      workers_[slot]->renew_epoch_in_snapshot();
      if (routers_[router]) routers_[router]->cut_wire(slot, CutKind::reset);  // which asks for one
      return;
    case FaultKind::slow_reader:
      if (routers_[router]) routers_[router]->pause_reading(slot, fault.length);
      return;
    case FaultKind::router_crash:
      if (!routers_[router]) return;
      ++tally_.crashes;
      routers_[router].reset();
      events_.after(fault.length, [this, router] { start_router(router); });
      return;
  }
}

void World::crash(std::uint32_t slot, Duration length) {
  if (!workers_[slot]) return;
  ++tally_.crashes;
  workers_[slot].reset();
  events_.after(length, [this, slot] {
    if (!workers_[slot]) start_worker(slot);
  });
}

void World::freeze(std::uint32_t slot, Duration length) {
  if (!workers_[slot]) return;
  ++tally_.freezes;
  workers_[slot]->process().freeze();
  disturbed_until_[slot] = std::max(disturbed_until_[slot], events_.now() + length + 1s);
  events_.after(length, [this, slot] {
    if (workers_[slot]) workers_[slot]->process().thaw();
  });
}

void World::drain(std::uint32_t slot, Duration length) {
  if (!workers_[slot]) return;
  workers_[slot]->drain();
  wait_for_drain(slot, workers_[slot]->instance(), events_.now() + length + 1s);
}

void World::wait_for_drain(std::uint32_t slot, InstanceId instance, TimePoint until) {
  events_.after(20ms, [this, slot, instance, until] {
    if (!workers_[slot] || workers_[slot]->instance() != instance) return;
    if (workers_[slot]->is_drained() || events_.now() >= until) return crash(slot, 200ms);
    wait_for_drain(slot, instance, until);
  });
}

void World::calm() {
  is_calm_ = true;
  fabric_.calm();
  for (std::uint32_t slot = 0; slot < workers_.size(); ++slot) {
    if (!workers_[slot]) continue;
    workers_[slot]->process().thaw();
    workers_[slot]->set_slowness(1);
  }
}

// A worker works on nothing that its router gave up: the ABORT reached it. Transfers may outlive a request until their
// lease and longest pin are over.
void World::check_held() {
  const TimePoint now = events_.now();
  for (std::uint32_t slot = 0; slot < workers_.size(); ++slot) {
    if (!workers_[slot] || workers_[slot]->process().is_frozen() || now < disturbed_until_[slot]) continue;
    idle_work_[slot] = workers_[slot]->works_for_nobody() ? idle_work_[slot] + 1 : 0;
    if (idle_work_[slot] > 4)
      violations_.add("worker " + std::to_string(slot) + " works although no router wants it to");
    for (const auto& held : workers_[slot]->held()) {
      if (held.is_cut) continue;
      const Duration slack = held.is_send ? plan_.transfer.max_pin + 1s : 500ms;
      if (now - held.since < slack) continue;
      const RequestPlan& request = plan_.requests[held.request.low - 1];
      const auto& router = routers_[request.router];
      if (!router || router->knows(held.request, now - slack)) continue;
      violations_.add("worker " + std::to_string(slot) + " still holds request " +
                      std::to_string(held.request.low - 1) + ", which its router has ended");
    }
  }
  events_.after(100ms, [this] { check_held(); });
}

bool World::is_all_ended() const {
  for (const auto& router : routers_) {
    if (!router) return false;
    for (const auto& call : router->calls()) {
      if (!call->is_ended()) return false;
    }
  }
  return true;
}

TimePoint World::run_until(TimePoint end) {
  while (violations_.is_empty() && events_.run_one(end)) {
    if (events_.count() > events_max) violations_.add("more events than any run can need: something spins");
  }
  return events_.now();
}

void World::run() {
  run_until(plan_.requests.back().at + 1ms);  // the probes, after the quiet
  const TimePoint limit = plan_.quiet_at + liveness_max;
  while (violations_.is_empty() && !is_all_ended() && events_.now() < limit) run_until(events_.now() + 200ms);
  run_until(events_.now() + settle);
  tally_.events = events_.count();
  if (!violations_.is_empty()) return;
  for (const auto& worker : workers_) {
    if (worker) worker->check_quiet();
  }
  for (const auto& router : routers_) router->check_quiet();
}

}  // namespace penstock::sim
