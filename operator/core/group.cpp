#include "operator/core/group.hpp"

#include <algorithm>

#include "operator/core/group_status.hpp"
#include "operator/core/names.hpp"
#include "operator/core/placement.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {
namespace {

constexpr std::string_view no_pack = "None";  // in the status, where "" means: not written yet
constexpr std::int64_t room_look_s = 30;      // nobody tells when devices of others become free
constexpr std::int64_t drain_slack_s =
    60;  // after the deadline pods that hang on a lost node are left to the collector

std::uint64_t number(const Pod& pod, std::string_view name) {
  return parse_decimal(pod.meta.labels.get(name)).value_or(0);
}

bool contains(const std::vector<const Pod*>& pods, const Pod* pod) {
  return std::find(pods.begin(), pods.end(), pod) != pods.end();
}

/// One look at one group. Made for one call of plan_group().
class Planner {
 public:
  explicit Planner(const GroupInput& input) : input_(input), policy_(restart_policy(*input.role)) {
    plan_.status = input.group->status;
    plan_.epoch = effective_epoch(*input.group, input.pods);
    if (plan_.status.pack_domain.empty()) set_pack(input.ladder.front());
    plan_.pack = plan_.status.pack_domain == no_pack ? "" : plan_.status.pack_domain;
    find_members();
  }

  GroupPlan run() {
    if (const auto deadline = drain_deadline(input_.group->meta)) {
      drain(*deadline);
    } else if (const Pod* lost = first_lost()) {
      on_lost(*lost, lost->problem.empty() ? "MemberLost" : lost->problem, "pod " + lost->meta.name + " was lost");
    } else if (!missing().empty()) {
      make_missing();
    } else {
      watch_start();
    }
    teller_.tell();
    return std::move(plan_);
  }

 private:
  void set_pack(const std::string& level) {
    plan_.status.pack_domain = level.empty() ? std::string(no_pack) : level;
    plan_.pack = level;
  }

  /// The pod that stands for each rank. With policy Pod older epochs go on; otherwise only the current one counts.
  void find_members() {
    members_.assign(static_cast<std::size_t>(input_.role->group.size), nullptr);
    for (const Pod* pod : input_.pods) {
      const std::uint64_t rank = number(*pod, label::rank), epoch = number(*pod, label::epoch);
      const bool counts = epoch == plan_.epoch || (policy_ == api::RestartPolicy::pod && !pod->lost());
      if (rank >= members_.size() || !counts) continue;
      const Pod*& member = members_[rank];
      if (member == nullptr || number(*member, label::epoch) < epoch) member = pod;
    }
    for (const Pod* pod : input_.pods) {
      if (!contains(members_, pod) && !pod->meta.deleted) plan_.remove.push_back(pod);
    }
  }

  /// A rank without a pod was lost if the gang of this epoch had been complete; before that it wasn't made yet. The
  /// status may not say so yet; but a scheduler of gangs binds none before all are there.
  bool was_complete() const {
    const bool gang = !input_.leader_first && input_.role->group.startup == api::StartupOrder::parallel;
    if (gang && detail::count_bound(members_) > 0) return true;
    return kube::is_true(input_.group->status.conditions, "Scheduled") &&
           static_cast<std::uint64_t>(input_.group->status.epoch) == plan_.epoch;
  }

  std::vector<std::uint32_t> missing() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
      if (members_[rank] == nullptr) ranks.push_back(rank);
    }
    return ranks;
  }

  const Pod* first_lost() const {
    for (const Pod* pod : members_) {
      if (pod != nullptr && (pod->lost() || contains(input_.on_lost_nodes, pod))) return pod;
    }
    return nullptr;
  }

  void on_lost(const Pod& lost, std::string_view reason, const std::string& what) {
    if (policy_ == api::RestartPolicy::none) {
      plan_.state = GroupState::failed;
      teller_.failed(reason, what + "; the restart policy is None. Delete the group to have a new one.");
      return;
    }
    restart(reason, what);
    for (const Pod* pod : members_) {
      if (pod == nullptr || pod->meta.deleted) continue;
      if (policy_ == api::RestartPolicy::group || pod == &lost) plan_.remove.push_back(pod);
    }
  }

  /// Begins the next epoch. The status is written first: pods of an older epoch are then removed whatever happens.
  void restart(std::string_view reason, const std::string& what) {
    plan_.state = GroupState::restarting;
    auto& status = plan_.status;
    const auto& spec = input_.role->group.restart;
    const bool window_over =
        !status.window_start || input_.now.unix_s() - status.window_start->unix_s() >= restart_window_s;
    if (window_over) {
      status.window_start = input_.now;
      status.restarts = 0;
    }
    ++status.restarts;
    const bool exhausted = spec.budget > 0 && status.restarts > spec.budget;
    std::int64_t delay = exhausted ? spec.max_backoff_seconds : spec.backoff_seconds;
    for (std::int32_t i = 1; i < status.restarts && delay < spec.max_backoff_seconds; ++i) delay *= 2;
    delay = std::min<std::int64_t>(delay, spec.max_backoff_seconds);
    status.next_restart_time = kube::Timestamp::from_seconds(input_.now.unix_s() + delay);
    next_epoch();
    const std::string text = what + "; the next start is in " + std::to_string(delay) + " s";
    if (exhausted) {
      teller_.failed("RestartBudgetExhausted", std::to_string(status.restarts) + " restarts in an hour: " + text +
                                                   ". Look at the logs of its pods; a changed spec starts afresh.");
    }
    plan_.notices.push_back({true, "GroupRestarting", std::string(reason) + ": " + text});
  }

  void next_epoch() {
    ++plan_.epoch;
    plan_.look_again = Duration{};
  }

  void make_missing() {
    const std::vector<std::uint32_t> ranks = missing();
    if (was_complete() && policy_ != api::RestartPolicy::pod) {
      if (policy_ == api::RestartPolicy::none) {
        plan_.state = GroupState::failed;
        teller_.failed("MemberLost", "a pod was deleted; the restart policy is None.");
        return;
      }
      restart("MemberLost", "a pod was deleted");
      for (const Pod* pod : members_) {
        if (pod != nullptr && !pod->meta.deleted) plan_.remove.push_back(pod);
      }
      return;
    }
    const auto& next = plan_.status.next_restart_time;
    if (next && input_.now < *next) {
      plan_.state = GroupState::restarting;
      plan_.look_again = std::chrono::seconds(next->unix_s() - input_.now.unix_s() + 1);
      return;
    }
    if (!input_.no_room.empty()) {
      plan_.state = GroupState::held;
      plan_.look_again = std::chrono::seconds(room_look_s);
      return;
    }
    plan_.state = GroupState::creating;
    plan_.create = ranks;
    const bool leader_ready = members_[0] != nullptr && members_[0]->ready;
    if (input_.role->group.startup == api::StartupOrder::leader_first && !leader_ready) {
      plan_.create.clear();
      if (members_[0] == nullptr) plan_.create.push_back(0);
    }
  }

  /// All members exist.
  void watch_start() {
    if (detail::count_bound(members_) < members_.size()) {
      plan_.state = GroupState::waiting;
      if (input_.leader_first && members_[0]->bound()) {
        for (const Pod* pod : members_) {
          if (pod->gated) plan_.let_go.push_back(pod);
        }
      }
      try_broader();
      return;
    }
    if (detail::count_ready(members_) == members_.size()) {
      plan_.state = GroupState::ready;
      plan_.status.next_restart_time.reset();
      return;
    }
    plan_.state = GroupState::loading;
    std::int64_t since = 0;
    for (const Pod* pod : members_) since = std::max(since, pod->scheduled_at.unix_s());
    const std::int64_t left = since + input_.role->startup_seconds - input_.now.unix_s();
    // Only a start can time out: what was ready and isn't now is the probes' and the router's affair.
    const bool starts = !kube::is_true(input_.group->status.conditions, "Ready") && !teller_.was_ready();
    if (!starts || since == 0) return;
    if (left > 0) {
      plan_.look_again = std::chrono::seconds(left + 1);
      return;
    }
    on_lost(*members_[0], "StartupTimeout",
            "not ready within startupSeconds (" + std::to_string(input_.role->startup_seconds) + " s)");
  }

  void try_broader() {
    const auto next = next_rung(input_.ladder, plan_.pack);
    if (!next) return;
    std::int64_t since = 0;
    for (const Pod* pod : members_) since = std::max(since, pod->meta.created.unix_s());
    const std::int64_t left = since + escalate_after_s - input_.now.unix_s();
    if (left > 0) {
      plan_.look_again = std::chrono::seconds(left + 1);
      return;
    }
    plan_.notices.push_back(
        {false, "PackEscalated",
         "no room in " + plan_.pack + "; trying " + (next->empty() ? "without a constraint" : *next)});
    for (const Pod* pod : members_) {
      if (!pod->meta.deleted) plan_.remove.push_back(pod);
    }
    set_pack(*next);
    next_epoch();
  }

  void drain(kube::Timestamp deadline) {
    plan_.state = GroupState::draining;
    plan_.remove.clear();
    for (const Pod* pod : input_.pods) {
      if (!pod->meta.deleted) plan_.remove.push_back(pod);
    }
    const std::int64_t left = deadline.unix_s() + drain_slack_s - input_.now.unix_s();
    plan_.delete_group = input_.pods.empty() || left <= 0;
    if (!plan_.delete_group) plan_.look_again = std::chrono::seconds(left + 1);
  }

  const GroupInput& input_;
  const api::RestartPolicy policy_;
  detail::Members members_;
  GroupPlan plan_;
  detail::GroupTeller teller_{input_, members_, plan_};
};

}  // namespace

std::uint64_t effective_epoch(const api::WorkerGroup& group, const std::vector<const Pod*>& pods) {
  auto epoch = static_cast<std::uint64_t>(std::max<std::int64_t>(0, group.status.epoch));
  for (const Pod* pod : pods) epoch = std::max(epoch, number(*pod, label::epoch));
  return epoch;
}

std::optional<kube::Timestamp> drain_deadline(const kube::ObjectMeta& group) {
  const auto text = group.annotations.find(annotation::drain_deadline);
  if (!text) return std::nullopt;
  // An unreadable deadline still means: go.
  return kube::Timestamp::from_seconds(static_cast<std::int64_t>(parse_decimal(*text).value_or(0)));
}

GroupPlan plan_group(const GroupInput& input) {
  return Planner(input).run();
}

}  // namespace penstock::ctl
