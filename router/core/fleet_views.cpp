// What a Fleet shows: readiness, statistics, workers.
#include "router/core/fleet_state.hpp"

namespace penstock::router {

Readiness Fleet::readiness() const {
  Readiness out;
  std::size_t ready = 0;
  bool has_prefill = false, has_partner = false, decodes = false;
  for (const WorkerEntry& entry : state_->registry.slots()) {
    if (entry.ref.is_none()) continue;
    const std::string who = "worker " + entry.info.address + " ";
    switch (entry.state) {
      case WorkerState::ready:
        ++ready;
        break;
      case WorkerState::joining:
        out.reasons.push_back(who + "has not reported its load yet");
        break;
      case WorkerState::suspect:
        out.reasons.push_back(who + "does not answer");
        break;
      case WorkerState::draining:
        out.reasons.push_back(who + "is draining");
        break;
      case WorkerState::refused:
        out.reasons.push_back(who + "is refused: " + std::string(to_string(entry.refusal)));
        break;
      case WorkerState::gone:
        break;
    }
    if (entry.state != WorkerState::ready) continue;
    if (!state_->streams[entry.ref.slot]->synced()) {
      out.reasons.push_back(who + "has not sent its cache snapshot; its prefix matches may be incomplete");
    }
    decodes = decodes || entry.info.role != protocol::Role::prefill;
    if (entry.info.role != protocol::Role::prefill) continue;
    has_prefill = true;
    for (const WorkerEntry& other : state_->registry.slots()) {
      has_partner = has_partner || (!other.ref.is_none() && other.info.role != protocol::Role::prefill &&
                                    other.info.transfer_groups.can_exchange(entry.info.transfer_groups));
    }
  }
  out.can_serve = ready != 0;
  if (ready == 0) out.reasons.insert(out.reasons.begin(), "no worker is ready");
  if (ready != 0 && !decodes) out.reasons.push_back("only prefill workers are ready; they decode as well");
  if (has_prefill && decodes && !has_partner) {
    out.reasons.push_back(
        "no prefill worker has the KV layout and pairing key of a decode worker; nothing is disaggregated");
  }
  return out;
}

FleetStats Fleet::stats() const {
  const State& s = *state_;
  FleetStats out = s.counts;
  out.index_bytes = s.index.bytes();
  out.index_blocks = s.index.blocks();
  out.predicted_blocks = s.index.predicted_blocks();
  out.index_blocks_evicted = s.index.evicted();
  out.events_applied = s.event_counts.applied;
  out.gaps = s.event_counts.gaps;
  out.snapshots = s.event_counts.snapshots;
  out.snapshots_discarded = s.event_counts.snapshots_discarded;
  out.requests_in_flight = s.dispatches.size();
  for (const auto& stream : s.streams) out.workers_unsynced += stream != nullptr && !stream->synced() ? 1 : 0;
  return out;
}

std::vector<WorkerView> Fleet::workers(TimePoint now) const {
  const State& s = *state_;
  std::vector<WorkerView> out;
  for (const WorkerEntry& entry : s.registry.slots()) {
    if (entry.ref.is_none()) continue;
    const EventStream* stream = s.streams[entry.ref.slot].get();
    const bool heard = stream != nullptr && stream->has_messages();
    out.push_back({entry.ref, entry.info, entry.state, entry.refusal, s.index.blocks_of(entry.ref.slot),
                   s.loads[entry.ref.slot].requests(), stream != nullptr && stream->synced(),
                   s.loads[entry.ref.slot].age(now), heard ? now - stream->last_message() : Duration{-1},
                   stream != nullptr ? stream->stale_for(now) : Duration{}});
  }
  return out;
}

const WorkerInfo* Fleet::find(WorkerRef worker) const {
  const WorkerEntry* entry = state_->registry.find(worker);
  return entry == nullptr ? nullptr : &entry->info;
}

WorkerState Fleet::state(WorkerRef worker) const {
  const WorkerEntry* entry = state_->registry.find(worker);
  return entry == nullptr ? WorkerState::gone : entry->state;
}

const FleetSettings& Fleet::settings() const {
  return state_->settings;
}

}  // namespace penstock::router
