// Internal to fleet*.cpp: what a Fleet holds.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "common/time/random.hpp"
#include "router/core/fleet.hpp"
#include "router/core/index/event_stream.hpp"
#include "router/core/membership/registry.hpp"
#include "router/core/policy/load_view.hpp"
#include "router/core/policy/policy.hpp"

namespace penstock::router {

struct Fleet::State {
  static constexpr std::size_t sweep_cells = 1u << 15;  // a tick

  struct Holder {
    WorkerRef worker;  // none: nobody, or not any more
    LoadView::Share share;
  };
  struct Dispatch {
    Holder whole;    // the worker that decodes
    Holder prefill;  // of a split request
    std::uint32_t cached_tokens = 0;
    bool has_token = false;
    std::vector<BlockHash> blocks;  // until the first token, to take predictions back
  };

  State(FleetSettings given, std::uint64_t seed)
      : settings(std::move(given)),
        rules{settings.block_tokens, settings.hash_scheme, settings.model, {}},
        registry(settings.workers_max),
        index({settings.index_bytes_max, settings.predicted_blocks_max}),
        policy(settings.policy, settings.block_tokens),
        random(seed) {}

  WorkerEntry* entry(WorkerRef worker) {
    WorkerEntry* found = registry.find(worker);
    if (found == nullptr) ++counts.stale_messages;
    return found;
  }
  EventStream* stream(WorkerRef worker, TimePoint at) {
    now = std::max(now, at);
    return entry(worker) == nullptr ? nullptr : streams[worker.slot].get();
  }
  LoadView* load(WorkerRef worker) { return registry.find(worker) == nullptr ? nullptr : &loads[worker.slot]; }
  Dispatch* dispatch(DispatchId id) {
    auto at = dispatches.find(id);
    if (at == dispatches.end()) ++counts.stale_messages;
    return at == dispatches.end() ? nullptr : &at->second;
  }
  void close(Holder& holder) {
    if (LoadView* view = load(holder.worker)) view->on_done(holder.share);
    holder.worker = WorkerRef{};
  }

  FleetSettings settings;
  FleetRules rules;
  Registry registry;
  PrefixIndex index;
  Policy policy;
  Random random;
  EventCounts event_counts;
  FleetStats counts;
  std::vector<LoadView> loads;                        // by slot
  std::vector<std::unique_ptr<EventStream>> streams;  // by slot; nullptr for refused workers
  std::unordered_map<DispatchId, Dispatch> dispatches;
  DispatchId last_dispatch = 0;
  PrefixMatch match;
  TimePoint now{};  // the latest that anybody passed in
};

}  // namespace penstock::router
