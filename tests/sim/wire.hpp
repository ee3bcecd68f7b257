// One TCP connection of a router and a worker: ordered both ways, never losing a message in the middle. When it is cut,
// what is under way is lost and both ends learn of it, unless it is a black hole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/protocol/messages.hpp"
#include "tests/sim/event_queue.hpp"

namespace penstock::sim {

enum class CutKind : std::uint8_t { reset, blackhole };

struct Wire {
  std::uint64_t id = 0;
  bool is_cut = false;
  bool is_closing = false;                            // by the worker, whose words nobody reads
  TimePoint paused_until{};                           // the router reads nothing before
  std::uint32_t queued = 0;                           // messages for the router
  Duration lag_max = std::chrono::microseconds(500);  // of a message
  Lane to_worker_lane, to_router_lane;
  // Set by the ends while they live; called through their processes.
  Process* router = nullptr;
  Process* worker = nullptr;
  std::function<void(protocol::RouterMessage)> to_worker;
  std::function<void(protocol::WorkerMessage)> to_router;
  std::function<void()> worker_closed, router_closed;
};
using WirePtr = std::shared_ptr<Wire>;  // shared by both ends and by messages under way

/// The router's end has gone (closed, or its process died); `lag` until the worker learns of it.
inline void drop_router_end(EventQueue& events, const WirePtr& wire) {
  wire->is_cut = true;
  wire->router = nullptr;
  wire->to_router = nullptr;
  wire->router_closed = nullptr;
  if (wire->worker == nullptr) return;
  const Duration lag = wire->to_worker_lane.delay(events.now(), events.between(Duration(100'000), Duration(5'000'000)));
  wire->worker->after(lag, [wire] {
    if (wire->worker_closed) wire->worker_closed();
  });
}

inline void drop_worker_end(EventQueue& events, const WirePtr& wire) {
  wire->is_cut = true;
  wire->worker = nullptr;
  wire->to_worker = nullptr;
  wire->worker_closed = nullptr;
  if (wire->router == nullptr) return;
  const Duration lag = wire->to_router_lane.delay(events.now(), events.between(Duration(100'000), Duration(5'000'000)));
  wire->router->after(lag, [wire] {
    if (wire->router_closed) wire->router_closed();
  });
}

inline void send_to_worker(EventQueue& events, const WirePtr& wire, protocol::RouterMessage message) {
  if (wire->is_cut || wire->worker == nullptr) return;
  const Duration lag = wire->to_worker_lane.delay(events.now(), events.between(Duration(50'000), wire->lag_max));
  wire->worker->after(lag, [wire, message = std::move(message)]() mutable {
    if (!wire->is_cut && wire->to_worker) wire->to_worker(std::move(message));
  });
}

inline void send_to_router(EventQueue& events, const WirePtr& wire, protocol::WorkerMessage message) {
  if (wire->is_cut || wire->router == nullptr) return;
  const Duration lag = wire->to_router_lane.delay(
      events.now(), std::max(events.between(Duration(50'000), wire->lag_max), wire->paused_until - events.now()));
  ++wire->queued;
  wire->router->after(lag, [wire, message = std::move(message)]() mutable {
    --wire->queued;
    if (!wire->is_cut && wire->to_router) wire->to_router(std::move(message));
  });
}

}  // namespace penstock::sim
