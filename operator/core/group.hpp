// The life of one group: a pure function from its pods, its stored facts and the time to what to do now. The state is
// derived, never stored; the only stored facts are epoch, restarts, window and next restart (in the status) and the
// drain deadline (an annotation). A crash between any two writes is repaired by the next look. See
// docs/contracts/reconcile.md. Pure; any thread. O(pods).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/clock.hpp"
#include "operator/api/role.hpp"
#include "operator/api/worker_group.hpp"
#include "operator/core/observed.hpp"

namespace penstock::ctl {

enum class GroupState : std::uint8_t {
  creating,    // pods of the epoch are missing
  waiting,     // all there, not all bound
  loading,     // all bound, not all ready
  ready,       // every member is ready
  restarting,  // a member was lost; the next epoch begins at next_restart_time
  failed,      // a member was lost and the policy is to leave it so
  held,        // co-located with what has no room for it
  draining,    // told to go; pods finish their streams
};
std::string_view to_string(GroupState state);  // CamelCase: reasons of conditions
bool is_state(std::string_view reason);        // a stage of the way, and not something that stands in it

struct GroupInput {
  const api::WorkerGroup* group = nullptr;
  const api::RoleSpec* role = nullptr;    // size and policy of the revision, budgets of the service as it is now
  std::vector<const Pod*> pods;           // all of the group, of every epoch
  std::vector<const Pod*> on_lost_nodes;  // those whose node has been away for nodeLostSeconds
  std::vector<std::string> ladder;        // pack levels to try, see placement.hpp; one if the back end prefers itself
  bool leader_first = false;              // plain scheduling: the others wait for the leader to be bound
  std::string domain;                     // instance that the leader is bound in
  std::string refusal;                    // what the API server said to the last write; empty if it took it
  std::string refusal_reason;
  std::string no_room;    // why co-location can't be had now; then no pods are made. Empty if it can
  std::size_t fleet = 0;  // groups of all services: what shares the API server's time
  kube::Timestamp now;
};

/// Something worth telling people, once.
struct Notice {
  bool warning = false;
  std::string reason;
  std::string note;
};

struct GroupPlan {
  GroupState state = GroupState::creating;
  std::uint64_t epoch = 0;
  std::string pack;                   // level of this epoch; "" is none
  std::vector<std::uint32_t> create;  // ranks
  std::vector<const Pod*> remove;
  std::vector<const Pod*> let_go;       // remove our scheduling gate
  bool delete_group = false;            // drained
  api::WorkerGroupStatus status;        // to be written before the rest if it differs
  std::optional<Duration> hold_status;  // it tells of a start's progress only: not now, look again after this
  std::optional<Duration> look_again;
  std::vector<Notice> notices;
};

GroupPlan plan_group(const GroupInput& input);

inline constexpr std::array<std::string_view, 8> troubles{
    "QuotaExceeded", "ImagePullBackOff", "Unschedulable",    "PodRejected",
    "Forbidden",     "NoRoomTogether",   "CrashLoopBackOff", "CreateContainerConfigError"};
/// Reasons that somebody has to do something about: an event when one begins, a metric while it lasts.
bool is_trouble(std::string_view reason);
/// The reason of the conditions Scheduled or Ready, if it is a trouble; else "".
std::string_view trouble_of(const api::WorkerGroupStatus& status);

/// max(status.epoch, epoch of any pod): a lost status write can't make an epoch come twice.
std::uint64_t effective_epoch(const api::WorkerGroup& group, const std::vector<const Pod*>& pods);
std::optional<kube::Timestamp> drain_deadline(const kube::ObjectMeta& group);

/// How long an epoch may be unschedulable before a broader pack level is tried.
inline constexpr std::int64_t escalate_after_s = 120;
inline constexpr std::int64_t restart_window_s = 3600;
/// How long the steps of a start are kept to oneself, and troubles that may pass: a gang that is up by then costs one
/// status write.
inline constexpr std::int64_t progress_hold_s = 15, trouble_hold_s = 5;
/// The first of them for so many groups, since schedulers and API servers take a fleet's pods one after the other: 35 s
/// for 500 groups, a minute at most.
std::int64_t progress_hold(std::size_t fleet);

}  // namespace penstock::ctl
