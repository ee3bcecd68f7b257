// A fleet for tests of placement: workers that are ready, idle and synced, and a clock that tests move by hand.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "router/core/fleet.hpp"

namespace penstock::router {

using protocol::Role;
using std::chrono::milliseconds;
using std::chrono::seconds;
inline constexpr TimePoint start{std::chrono::hours(1)};

inline std::vector<BlockHash> chain(std::uint64_t family, std::size_t count) {
  std::vector<BlockHash> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back({family, i + 1});
  return out;
}

/// A fleet with ready, idle, synced workers; past the slow start.
class World {
 public:
  explicit World(FleetSettings settings = {}, std::uint64_t seed = 1) : fleet(settings, seed) {}

  protocol::Welcome welcome(Role role = Role::unified) {
    protocol::Welcome out;
    out.instance = {7, ++instances_};
    out.epoch = 1;
    out.role = role;
    out.card.name = "model";
    out.card.context_tokens = 100000;
    out.kv_blocks = 10000;
    out.sequences_max = 16;
    out.kv_layout_fingerprint = "layout";
    out.kv_address = "127.0.0.1:7001";
    return out;
  }
  WorkerRef add(protocol::Welcome message) {
    const WorkerRef worker = fleet.on_welcome(message, "w" + std::to_string(instances_), {}, now).worker;
    fleet.on_snapshot(worker, {1, 0, 0, true, {}}, now);
    report(worker, {});
    return worker;
  }
  WorkerRef add(Role role = Role::unified) { return add(welcome(role)); }
  void report(WorkerRef worker, protocol::Load load) {
    load.kv_blocks_total = 10000;
    if (load.kv_blocks_free == 0) load.kv_blocks_free = 10000;
    fleet.on_load(worker, load, now);
  }
  void warm_up() { now += seconds(20); }
  void cache(WorkerRef worker, const std::vector<BlockHash>& blocks) {
    fleet.on_cache_events(worker, {1, ++sequences_[worker.generation], {protocol::BlockStored{0, {}, blocks}}}, now);
  }
  Placement choose(std::uint32_t tokens, const std::vector<BlockHash>& blocks = {}) {
    PlacementRequest request;
    request.prompt_tokens = tokens;
    request.blocks = blocks;
    request.output_tokens_max = 100;
    return fleet.choose(request, now);
  }
  Placement send(std::uint32_t tokens, const std::vector<BlockHash>& blocks = {}) {
    PlacementRequest request;
    request.prompt_tokens = tokens;
    request.blocks = blocks;
    request.output_tokens_max = 100;
    Placement placement = fleet.choose(request, now);
    if (placement.outcome == Outcome::placed) last = fleet.on_dispatched(request, placement, now);
    return placement;
  }
  const Candidate& candidate(const Placement& placement, WorkerRef worker) {
    for (const Candidate& one : placement.candidates) {
      if (one.worker == worker) return one;
    }
    throw std::logic_error("not a candidate");
  }

  Fleet fleet;
  TimePoint now = start;
  DispatchId last = 0;

 private:
  std::uint64_t instances_ = 0;
  std::map<std::uint32_t, std::uint64_t> sequences_;
};

}  // namespace penstock::router
