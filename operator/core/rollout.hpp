// The coordinated rollout: how many groups of each role to make and to take away now, given what is observed. There is
// no state of the roll: the step is derived from the counts each time, so a crash, a scaled role or a pod that someone
// else deleted changes the next plan and nothing more. docs/contracts/rollout.md has the rules and their reasons.
// Pure; any thread. O(roles * steps).
//
// Terms. A group is *new* if it has the revision that the service wants, else *old*. It is *available* if it has been
// ready for minReadySeconds, else *pending*. A draining group is neither: it only still holds its hardware.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::ctl {

enum class RollStrategy : std::uint8_t {
  coordinated,  // all roles move together in steps
  recreate,     // everything old goes first, then everything new comes
};

enum class RollState : std::uint8_t { running, paused };

/// One role as observed.
struct RoleCounts {
  std::uint32_t desired = 0;
  std::uint32_t surge = 1;        // groups above desired while it rolls
  std::uint32_t unavailable = 0;  // groups below desired while it rolls; surge and unavailable are not both 0
  std::uint32_t new_available = 0;
  std::uint32_t new_pending = 0;
  std::uint32_t old_available = 0;
  std::uint32_t old_pending = 0;
  std::uint32_t draining = 0;

  std::uint32_t made_new() const { return new_available + new_pending; }
  std::uint32_t made_old() const { return old_available + old_pending; }
  std::uint32_t live() const { return made_new() + made_old(); }
};

/// What to do with one role now. Which groups are meant is chosen by pick_victims().
struct RoleStep {
  std::uint32_t create_new = 0;
  std::uint32_t create_old = 0;  // scale-up while a partition or a pause keeps the old revision
  std::uint32_t drain_old = 0;   // available ones
  std::uint32_t drop_old = 0;    // pending ones: they serve nobody, so they cost no budget
  std::uint32_t remove_new = 0;  // scale-down of what has the new revision already, pending ones first
  friend bool operator==(const RoleStep&, const RoleStep&) = default;
  bool empty() const { return *this == RoleStep{}; }
};

struct RollOptions {
  RollStrategy strategy = RollStrategy::coordinated;
  RollState state = RollState::running;
  std::uint32_t partition_percent = 100;  // of the new revision that is allowed
};

struct RollPlan {
  std::vector<RoleStep> roles;  // as given
  std::uint32_t step = 0;       // reached by every role
  std::uint32_t steps = 0;      // in all; 0 when nothing is old
};

RollPlan plan_roll(std::span<const RoleCounts> roles, const RollOptions& options);

/// Of `desired` groups, how many are to be new at a step, and how many old are kept until the next step has its new
/// ones. steps > 0; step <= steps; surge_size is 0 for roles that roll by unavailability.
std::uint32_t new_at(std::uint32_t desired, std::uint32_t surge, std::uint32_t step, std::uint32_t steps);
std::uint32_t old_at(std::uint32_t desired, std::uint32_t step, std::uint32_t steps);

}  // namespace penstock::ctl
