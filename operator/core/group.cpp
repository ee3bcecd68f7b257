#include "operator/core/group.hpp"

#include <algorithm>

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

kube::Condition condition(std::string_view type, bool is_true, std::string_view reason, std::string message) {
  kube::Condition out;
  out.type = type;
  out.status = is_true ? kube::ConditionStatus::yes : kube::ConditionStatus::no;
  out.reason = reason;
  out.message = std::move(message);
  return out;
}

std::string count_of(std::size_t some, std::int32_t all, std::string_view what) {
  return std::to_string(some) + " of " + std::to_string(all) + " pods " + std::string(what);
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
    finish();
    hold();
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
    if (gang && bound() > 0) return true;
    return kube::is_true(input_.group->status.conditions, "Scheduled") &&
           static_cast<std::uint64_t>(input_.group->status.epoch) == plan_.epoch;
  }

  const Pod* first_lost() const {
    for (const Pod* pod : members_) {
      if (pod != nullptr && (pod->lost() || contains(input_.on_lost_nodes, pod))) return pod;
    }
    return nullptr;
  }

  std::vector<std::uint32_t> missing() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
      if (members_[rank] == nullptr) ranks.push_back(rank);
    }
    return ranks;
  }

  std::size_t count(bool (*is)(const Pod&)) const {
    return static_cast<std::size_t>(
        std::count_if(members_.begin(), members_.end(), [&](const Pod* pod) { return pod != nullptr && is(*pod); }));
  }
  std::size_t bound() const {
    return count([](const Pod& pod) { return pod.bound(); });
  }
  std::size_t ready() const {
    return count([](const Pod& pod) { return pod.ready && !pod.lost(); });
  }

  void on_lost(const Pod& lost, std::string_view reason, const std::string& what) {
    if (policy_ == api::RestartPolicy::none) {
      plan_.state = GroupState::failed;
      set(condition("Failed", true, reason,
                    what + "; the restart policy is None. Delete the group to have a new one."));
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
      set(condition("Failed", true, "RestartBudgetExhausted",
                    std::to_string(status.restarts) + " restarts in an hour: " + text +
                        ". Look at the logs of its pods; a changed spec starts afresh."));
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
        set(condition("Failed", true, "MemberLost", "a pod was deleted; the restart policy is None."));
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
    if (bound() < members_.size()) {
      plan_.state = GroupState::waiting;
      if (input_.leader_first && members_[0]->bound()) {
        for (const Pod* pod : members_) {
          if (pod->gated) plan_.let_go.push_back(pod);
        }
      }
      try_broader();
      return;
    }
    if (ready() == members_.size()) {
      plan_.state = GroupState::ready;
      plan_.status.next_restart_time.reset();
      return;
    }
    plan_.state = GroupState::loading;
    std::int64_t since = 0;
    for (const Pod* pod : members_) since = std::max(since, pod->scheduled_at.unix_s());
    const std::int64_t left = since + input_.role->startup_seconds - input_.now.unix_s();
    // Only a start can time out: what was ready and isn't now is the probes' and the router's affair.
    const bool starts = !kube::is_true(input_.group->status.conditions, "Ready") && !was_ready();
    if (!starts || since == 0) return;
    if (left > 0) {
      plan_.look_again = std::chrono::seconds(left + 1);
      return;
    }
    on_lost(*members_[0], "StartupTimeout",
            "not ready within startupSeconds (" + std::to_string(input_.role->startup_seconds) + " s)");
  }

  /// It has been ready in this epoch before: the condition turned False after the pods were bound.
  bool was_ready() const {
    const auto* condition = kube::find_condition(input_.group->status.conditions, "Ready");
    return condition != nullptr && condition->reason == "MembersNotReady";
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

  void set(kube::Condition condition) {
    condition.observed_generation = input_.group->meta.generation;
    const std::string type = condition.type;
    const bool is_true = condition.status == kube::ConditionStatus::yes;
    const std::string reason = condition.reason, message = condition.message;
    const auto change = kube::set_condition(plan_.status.conditions, std::move(condition), input_.now);
    const bool had = kube::find_condition(input_.group->status.conditions, type) != nullptr;
    if (change != kube::ConditionChange::status || !had) return;
    // That a start went well is told by the condition, and by the service for all its groups.
    const bool again = !is_true || was_ready() || plan_.status.restarts > 0;
    if (type == "Ready" && again)
      plan_.notices.push_back({!is_true, is_true ? "GroupReady" : "GroupNotReady", message});
    if (type == "Failed" && is_true) plan_.notices.push_back({true, reason, message});
  }

  /// Why the pods aren't bound or ready: the first pod that says so.
  std::pair<std::string, std::string> trouble(std::string_view otherwise) const {
    if (!input_.refusal.empty()) return {input_.refusal_reason, input_.refusal};
    if (plan_.state == GroupState::held) return {"NoRoomTogether", input_.no_room};
    for (const Pod* pod : members_) {
      if (pod != nullptr && !pod->problem.empty()) {
        return {pod->problem,
                "pod " + pod->meta.name + ": " + (pod->problem_detail.empty() ? pod->problem : pod->problem_detail)};
      }
    }
    return {std::string(otherwise), ""};
  }

  void finish() {
    auto& status = plan_.status;
    const std::int32_t size = input_.role->group.size;
    const bool live = plan_.epoch == effective_epoch(*input_.group, input_.pods) && plan_.state != GroupState::draining;
    const std::size_t is_bound = live ? bound() : 0, is_ready = live ? ready() : 0;
    const bool scheduled = is_bound == members_.size(), all_ready = scheduled && is_ready == members_.size();
    status.observed_generation = input_.group->meta.generation;
    status.epoch = static_cast<std::int64_t>(plan_.epoch);
    status.ready_pods = static_cast<std::int32_t>(is_ready);
    status.domain = scheduled ? input_.domain : "";
    status.leader_address =
        scheduled && members_[0] != nullptr && !members_[0]->ip.empty() ? members_[0]->ip + ":7000" : "";
    const auto [reason, detail] = trouble(to_string(plan_.state));
    const auto with_detail = [&, &detail = detail](std::string text) {
      return detail.empty() ? text : text + "; " + detail;
    };
    set(scheduled ? condition("Scheduled", true, "Bound", count_of(is_bound, size, "are bound"))
                  : condition("Scheduled", false, reason, with_detail(count_of(is_bound, size, "are bound"))));
    tell_trouble(reason, detail);
    std::string not_ready = plan_.state == GroupState::loading ? reason : std::string(to_string(plan_.state));
    const bool lost_readiness = kube::is_true(input_.group->status.conditions, "Ready") || was_ready();
    if (plan_.state == GroupState::loading && lost_readiness) not_ready = "MembersNotReady";
    set(all_ready ? condition("Ready", true, "MembersReady", count_of(is_ready, size, "are ready"))
                  : condition("Ready", false, not_ready, with_detail(count_of(is_ready, size, "are ready"))));
    const bool drains = plan_.state == GroupState::draining;
    set(drains ? condition("Draining", true, "Told", "pods finish their streams")
               : condition("Draining", false, "Serving", ""));
    // Failed stays until the group is ready again, so that a pause between restarts doesn't hide it.
    if (kube::find_condition(status.conditions, "Failed") == nullptr || all_ready) {
      set(condition("Failed", false, "Working", ""));
    }
  }

  void tell_trouble(const std::string& reason, const std::string& detail) {
    if (!is_trouble(reason) || trouble_of(input_.group->status) == reason) return;
    plan_.notices.push_back({true, reason, detail.empty() ? reason : detail});
  }

  /// What is stored, and what the service acts on, is written at once. How far a start has come can wait, at most for
  /// the hold after the epoch began and after the last step that was told.
  void hold() {
    const auto& before = input_.group->status;
    const auto& after = plan_.status;
    const bool stored = before.epoch != after.epoch || before.restarts != after.restarts ||
                        before.window_start != after.window_start ||
                        before.next_restart_time != after.next_restart_time ||
                        (!before.pack_domain.empty() && before.pack_domain != after.pack_domain);
    bool turned = !input_.refusal.empty();
    for (const std::string_view type : {"Ready", "Failed", "Draining"}) {
      turned |= kube::is_true(before.conditions, type) != kube::is_true(after.conditions, type);
    }
    if (stored || turned || was_ready()) return;
    std::int64_t since = input_.group->meta.created.unix_s();
    if (members_[0] != nullptr) since = std::max(since, members_[0]->meta.created.unix_s());
    for (const auto& condition : before.conditions) since = std::max(since, condition.last_transition.unix_s());
    const std::int64_t left = since + progress_hold_s - input_.now.unix_s();
    if (left <= 0) return;
    plan_.hold_status = std::chrono::seconds(left);
    plan_.notices.clear();  // they are about what is told, and come with it
  }

  const GroupInput& input_;
  const api::RestartPolicy policy_;
  std::vector<const Pod*> members_;  // by rank; null if there is none
  GroupPlan plan_;
};

}  // namespace

std::string_view to_string(GroupState state) {
  switch (state) {
    case GroupState::creating:
      return "Creating";
    case GroupState::waiting:
      return "Waiting";
    case GroupState::loading:
      return "Loading";
    case GroupState::ready:
      return "Ready";
    case GroupState::restarting:
      return "Restarting";
    case GroupState::failed:
      return "Failed";
    case GroupState::draining:
      return "Draining";
    case GroupState::held:
      return "NoRoomTogether";
  }
  return "";
}

bool is_state(std::string_view reason) {
  for (auto state = GroupState::creating; state <= GroupState::draining;
       state = static_cast<GroupState>(static_cast<int>(state) + 1)) {
    if (to_string(state) == reason) return true;
  }
  return false;
}

bool is_trouble(std::string_view reason) {
  for (const std::string_view one : troubles) {
    if (one == reason) return true;
  }
  return false;
}

std::string_view trouble_of(const api::WorkerGroupStatus& status) {
  for (const std::string_view type : {"Scheduled", "Ready"}) {
    const auto* condition = kube::find_condition(status.conditions, type);
    if (condition == nullptr || condition->status == kube::ConditionStatus::yes) continue;
    if (is_trouble(condition->reason)) return condition->reason;
  }
  return {};
}

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
