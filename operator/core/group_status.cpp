#include "operator/core/group_status.hpp"

#include <algorithm>

namespace penstock::ctl {
namespace detail {
namespace {

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

}  // namespace

std::size_t count_bound(const Members& members) {
  return static_cast<std::size_t>(
      std::count_if(members.begin(), members.end(), [](const Pod* pod) { return pod != nullptr && pod->bound(); }));
}
std::size_t count_ready(const Members& members) {
  return static_cast<std::size_t>(std::count_if(
      members.begin(), members.end(), [](const Pod* pod) { return pod != nullptr && pod->ready && !pod->lost(); }));
}

bool GroupTeller::was_ready() const {
  const auto* condition = kube::find_condition(input_.group->status.conditions, "Ready");
  return condition != nullptr && condition->reason == "MembersNotReady";
}

void GroupTeller::failed(std::string_view reason, std::string message) {
  set(condition("Failed", true, reason, std::move(message)));
}

void GroupTeller::set(kube::Condition condition) {
  condition.observed_generation = input_.group->meta.generation;
  const std::string type = condition.type;
  const bool is_true = condition.status == kube::ConditionStatus::yes;
  const std::string reason = condition.reason, message = condition.message;
  const auto change = kube::set_condition(plan_.status.conditions, std::move(condition), input_.now);
  const bool had = kube::find_condition(input_.group->status.conditions, type) != nullptr;
  if (change != kube::ConditionChange::status || !had) return;
  // That a start went well is told by the condition, and by the service for all its groups.
  const bool again = !is_true || was_ready() || plan_.status.restarts > 0;
  if (type == "Ready" && again) plan_.notices.push_back({!is_true, is_true ? "GroupReady" : "GroupNotReady", message});
  if (type == "Failed" && is_true) plan_.notices.push_back({true, reason, message});
}

/// Why the pods aren't bound or ready: the first pod that says so.
std::pair<std::string, std::string> GroupTeller::trouble(std::string_view otherwise) const {
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

void GroupTeller::tell_conditions() {
  auto& status = plan_.status;
  const std::int32_t size = input_.role->group.size;
  const bool live = plan_.epoch == effective_epoch(*input_.group, input_.pods) && plan_.state != GroupState::draining;
  const std::size_t is_bound = live ? count_bound(members_) : 0, is_ready = live ? count_ready(members_) : 0;
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

void GroupTeller::tell_trouble(const std::string& reason, const std::string& detail) {
  if (!is_trouble(reason) || trouble_of(input_.group->status) == reason) return;
  plan_.notices.push_back({true, reason, detail.empty() ? reason : detail});
}

/// What is stored, and what the service acts on, is written at once. How far a start has come can wait, at most for
/// the hold after pods were made and after the last step that was told.
void GroupTeller::hold() {
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
  // A group that waited its turn among many begins to start only now.
  if (!plan_.create.empty()) since = input_.now.unix_s();
  const bool troubled = !trouble_of(before).empty() || !trouble_of(after).empty();  // that it is over counts as much
  const std::int64_t hold_s = troubled ? trouble_hold_s : progress_hold(input_.fleet);
  const std::int64_t left = since + hold_s - input_.now.unix_s();
  if (left <= 0) return;
  plan_.hold_status = std::chrono::seconds(left);
  plan_.notices.clear();  // they are about what is told, and come with it
}

void GroupTeller::tell() {
  tell_conditions();
  hold();
}

}  // namespace detail

std::int64_t progress_hold(std::size_t fleet) {
  constexpr std::size_t groups_a_second = 25;
  constexpr std::int64_t longest_s = 60;
  return std::min(progress_hold_s + static_cast<std::int64_t>(fleet / groups_a_second), longest_s);
}

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

}  // namespace penstock::ctl
