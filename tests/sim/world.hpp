// One simulated run: routers, workers, fabric and clients of a plan, its faults, and the checkers that need to see more
// than one of them. Single thread; deterministic for a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/event_queue.hpp"
#include "tests/sim/fabric.hpp"
#include "tests/sim/violations.hpp"
#include "tests/sim/worker.hpp"

namespace penstock::sim {

class SimRouter;

class World final : private Neighbours {
 public:
  explicit World(Plan plan);
  ~World() override;

  /// To the end of the plan, and until everything must be at rest.
  void run();
  const Violations& violations() const { return violations_; }
  const Tally& tally() const { return tally_; }

 private:
  SimWorker* find_worker(const std::string& kv_address) override;
  SimWorker* find_worker(InstanceId instance) override;

  void start_worker(std::uint32_t slot);
  void start_router(std::uint32_t index);
  void schedule();
  void break_something(const FaultPlan& fault);
  void crash(std::uint32_t slot, Duration length);
  void freeze(std::uint32_t slot, Duration length);
  void drain(std::uint32_t slot, Duration length);
  void wait_for_drain(std::uint32_t slot, InstanceId instance, TimePoint until);
  void calm();
  void check_held();
  bool is_all_ended() const;
  TimePoint run_until(TimePoint end);

  Plan plan_;
  EventQueue events_;
  Violations violations_;
  Tally tally_;
  Fabric fabric_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<SimRouter>> routers_;
  std::vector<TimePoint> disturbed_until_;  // by slot: frozen or slow
  std::vector<std::uint32_t> idle_work_;    // by slot: looks in a row at which a worker worked for nobody
  std::uint64_t instances_ = 0;
  bool is_calm_ = false;
};

}  // namespace penstock::sim
