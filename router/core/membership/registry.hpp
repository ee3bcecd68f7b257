// Who is connected, in which state, and whether a new connection may be used at all. Holds no load and no cache state.
// Single owner. Slots are dense and used again; generations grow for ever and fence off everything said about a worker
// that is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/protocol/messages.hpp"
#include "router/core/membership/worker.hpp"

namespace penstock::router {

/// What a fleet demands of each worker. Empty fields of the rules are filled from the first worker that is taken.
struct FleetRules {
  std::uint32_t block_tokens = 16;
  std::string hash_scheme;
  std::string model;
  std::string revision;
};

struct Examination {
  Refusal refusal = Refusal::none;
  std::string detail;
};
Examination examine(const protocol::Welcome& welcome, const FleetRules& rules,
                    std::span<const BlockHash> expected_probe);

struct WorkerEntry {
  WorkerRef ref;  // none: the slot is free
  WorkerState state = WorkerState::gone;
  Refusal refusal = Refusal::none;
  TimePoint joined{};
  TimePoint ready_since{};
  WorkerInfo info;
};

class Registry {
 public:
  explicit Registry(std::uint32_t workers_max) : workers_max_(workers_max) {}

  /// nullptr if workers_max are connected. `usable` says whether a free slot may be taken again already.
  WorkerEntry* add(WorkerInfo info, const Examination& examination, TimePoint now,
                   const std::function<bool(std::uint32_t)>& usable);
  void remove(WorkerRef worker);

  WorkerEntry* find(WorkerRef worker);
  const WorkerEntry* find(WorkerRef worker) const;
  bool has_instance(const InstanceId& instance) const;
  /// All slots, free ones too (their ref is none).
  std::span<WorkerEntry> slots() { return entries_; }
  std::span<const WorkerEntry> slots() const { return entries_; }

  void on_load(WorkerEntry& entry, TimePoint now);
  void on_suspect(WorkerEntry& entry);
  void on_alive(WorkerEntry& entry, TimePoint now);
  void on_draining(WorkerEntry& entry);
  /// Ends the join grace of workers that sent no load report.
  void tick(TimePoint now, Duration join_grace);

 private:
  void make_ready(WorkerEntry& entry, TimePoint now);

  std::uint32_t workers_max_;
  std::uint32_t generation_ = 0;
  std::uint32_t connected_ = 0;
  std::vector<WorkerEntry> entries_;
};

}  // namespace penstock::router
