#include "router/core/membership/registry.hpp"

#include <algorithm>
#include <utility>

namespace penstock::router {

std::string_view to_string(WorkerState state) {
  switch (state) {
    case WorkerState::joining:
      return "joining";
    case WorkerState::ready:
      return "ready";
    case WorkerState::suspect:
      return "suspect";
    case WorkerState::draining:
      return "draining";
    case WorkerState::refused:
      return "refused";
    case WorkerState::gone:
      return "gone";
  }
  return "?";
}

std::string_view to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "none";
    case Refusal::protocol_version:
      return "protocol_version";
    case Refusal::block_size:
      return "block_size";
    case Refusal::hash_scheme:
      return "hash_scheme";
    case Refusal::hash_probe:
      return "hash_probe";
    case Refusal::model:
      return "model";
    case Refusal::capacity:
      return "capacity";
    case Refusal::duplicate_instance:
      return "duplicate_instance";
  }
  return "?";
}

namespace {
Examination refuse(Refusal refusal, std::string detail) {
  return {refusal, std::move(detail)};
}

std::string differ(const std::string& what, const std::string& theirs, const std::string& ours) {
  return "the worker's " + what + " is " + theirs + ", the router's is " + ours;
}
}  // namespace

Examination examine(const protocol::Welcome& welcome, const FleetRules& rules,
                    std::span<const BlockHash> expected_probe) {
  if (welcome.version != protocol::protocol_version) {
    return refuse(Refusal::protocol_version, differ("protocol version", std::to_string(welcome.version),
                                                    std::to_string(protocol::protocol_version)));
  }
  if (!rules.model.empty() && welcome.card.name != rules.model) {
    return refuse(Refusal::model, differ("model", welcome.card.name, rules.model));
  }
  if (!rules.revision.empty() && welcome.card.revision != rules.revision) {
    return refuse(Refusal::model, differ("model revision", welcome.card.revision, rules.revision));
  }
  if (welcome.block_tokens != rules.block_tokens) {
    return refuse(Refusal::block_size, differ("block size", std::to_string(welcome.block_tokens) + " tokens",
                                              std::to_string(rules.block_tokens)));
  }
  if (!rules.hash_scheme.empty() && welcome.hash_scheme != rules.hash_scheme) {
    return refuse(Refusal::hash_scheme, differ("block hash scheme", welcome.hash_scheme, rules.hash_scheme));
  }
  if (!std::equal(welcome.hash_probe.begin(), welcome.hash_probe.end(), expected_probe.begin(), expected_probe.end())) {
    return refuse(Refusal::hash_probe,
                  "the worker hashes the probe's blocks to other values; key, revision or KV dtype differ");
  }
  if (welcome.kv_blocks == 0 || welcome.sequences_max == 0) {
    return refuse(Refusal::capacity, "the worker has no KV blocks or takes no sequences");
  }
  return {};
}

WorkerEntry* Registry::add(WorkerInfo info, const Examination& examination, TimePoint now,
                           const std::function<bool(std::uint32_t)>& usable) {
  if (connected_ >= workers_max_) return nullptr;
  std::uint32_t slot = 0;
  while (slot < entries_.size() && (!entries_[slot].ref.is_none() || !usable(slot))) ++slot;
  // Slots whose last owner is still being swept out are passed over, but never without bound.
  if (slot >= 2 * workers_max_) return nullptr;
  if (slot == entries_.size()) entries_.emplace_back();
  ++connected_;
  WorkerEntry& entry = entries_[slot];
  entry = WorkerEntry{};
  entry.ref = {slot, ++generation_};
  entry.info = std::move(info);
  entry.refusal = examination.refusal;
  entry.state = examination.refusal == Refusal::none ? WorkerState::joining : WorkerState::refused;
  entry.joined = now;
  return &entry;
}

void Registry::remove(WorkerRef worker) {
  WorkerEntry* entry = find(worker);
  if (entry == nullptr) return;
  *entry = WorkerEntry{};
  --connected_;
}

WorkerEntry* Registry::find(WorkerRef worker) {
  return const_cast<WorkerEntry*>(std::as_const(*this).find(worker));
}

const WorkerEntry* Registry::find(WorkerRef worker) const {
  if (worker.is_none() || worker.slot >= entries_.size()) return nullptr;
  const WorkerEntry& entry = entries_[worker.slot];
  return entry.ref == worker ? &entry : nullptr;
}

bool Registry::has_instance(const InstanceId& instance) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const WorkerEntry& entry) {
    return !entry.ref.is_none() && entry.refusal == Refusal::none && entry.info.instance == instance;
  });
}

void Registry::make_ready(WorkerEntry& entry, TimePoint now) {
  if (entry.ready_since == TimePoint{}) entry.ready_since = now;
  entry.state = WorkerState::ready;
}

void Registry::on_load(WorkerEntry& entry, TimePoint now) {
  if (entry.state == WorkerState::joining || entry.state == WorkerState::suspect) make_ready(entry, now);
}

void Registry::on_suspect(WorkerEntry& entry) {
  if (entry.state == WorkerState::ready || entry.state == WorkerState::joining) entry.state = WorkerState::suspect;
}

void Registry::on_alive(WorkerEntry& entry, TimePoint now) {
  if (entry.state == WorkerState::suspect) make_ready(entry, now);
}

void Registry::on_draining(WorkerEntry& entry) {
  if (entry.state != WorkerState::refused) entry.state = WorkerState::draining;
}

void Registry::tick(TimePoint now, Duration join_grace) {
  for (WorkerEntry& entry : entries_) {
    const bool waits = !entry.ref.is_none() && entry.state == WorkerState::joining;
    if (waits && now - entry.joined >= join_grace) make_ready(entry, now);
  }
}

}  // namespace penstock::router
