#include "operator/core/service_status.hpp"

#include <algorithm>

namespace penstock::ctl {
namespace {

constexpr std::size_t message_bytes_max = 256;  // nine conditions and sixteen roles stay under 4 KB

/// Conditions that are only ever bad because something is wrong; a cache that fills is not.
bool is_fault(std::string_view type, std::string_view reason) {
  return type != "Progressing" && reason != "CacheNotReady" &&
         std::find(service_troubles.begin(), service_troubles.end(), type) != service_troubles.end();
}

api::RoleStatus role_status(const RolePlan& plan) {
  api::RoleStatus out;
  out.name = plan.name;
  out.desired = plan.desired;
  const std::int32_t gpus = plan.role == nullptr ? 0 : gpus_a_pod(plan.role->spec) * plan.role->spec.group.size;
  for (const auto& group : plan.groups) {
    ++out.groups;
    out.gpus += gpus;
    if (group.leaving) {
      ++out.draining;
      continue;
    }
    out.updated += group.is_new;
    out.scheduled += group.scheduled;
    out.ready += group.ready;
    out.available += group.available;
    out.restarting += group.group->status.next_restart_time.has_value() && !group.ready;
  }
  return out;
}

class StatusBuilder {
 public:
  explicit StatusBuilder(const StatusInput& input) : input_(input) {
    out_.status = input.service->status;
    out_.status.observed_generation = input.service->meta.generation;
  }

  StatusResult run() {
    counts();
    progress();
    scheduled();
    readiness();
    from_problem("TopologyValid", input_.topology ? input_.topology : no_room_together(), "Valid");
    from_problem("ModelCached", input_.model, "Present");
    from_problem("ScalingActive", input_.scaling, input_.scaling_summary.empty() ? "Fixed" : "Active",
                 input_.scaling_summary);
    template_valid();
    degraded();
    return std::move(out_);
  }

 private:
  void counts() {
    auto& status = out_.status;
    status.roles.clear();
    status.gpus = 0;
    for (const auto& role : input_.plan->roles) {
      status.roles.push_back(role_status(role));
      desired_ += role.desired;
      ready_ += std::min(status.roles.back().ready, role.desired);
      available_all_ &= status.roles.back().available >= role.desired;
      updated_all_ &= status.roles.back().updated >= role.desired;
      some_available_ &= status.roles.back().available > 0 || role.desired == 0;
      status.gpus += status.roles.back().gpus;
    }
    status.ready_groups = std::to_string(ready_) + "/" + std::to_string(desired_);
    status.update_revision = input_.resolved->revision;
    if (!input_.plan->rolling && available_all_) status.current_revision = status.update_revision;
    status.scheduling_backend = to_string(input_.gang.gang);
    status.endpoint = input_.endpoint;
  }

  void set(std::string_view type, kube::ConditionStatus is, std::string_view reason, std::string message) {
    kube::Condition condition;
    condition.type = type;
    condition.status = is;
    condition.reason = reason;
    condition.message = message.substr(0, message_bytes_max);
    condition.observed_generation = input_.service->meta.generation;
    const auto* before = kube::find_condition(input_.service->status.conditions, type);
    const auto change = kube::set_condition(out_.status.conditions, std::move(condition), input_.now);
    const bool good = (is == kube::ConditionStatus::yes) != (type == "Degraded");
    // A service begins with nothing ready, which is no news; what is wrong with it from the first is.
    if (before == nullptr && (good || !is_fault(type, reason))) return;
    // What waited its turn and now meets a refusal is worth an event too, though it was False before.
    const bool refused =
        !good && type == "Scheduled" && before != nullptr && before->reason != reason && !is_state(reason);
    if (change != kube::ConditionChange::status && !refused) return;
    out_.notices.push_back({!good, std::string(reason), std::string(type) + ": " + message});
  }
  void set(std::string_view type, bool is, std::string_view reason, std::string message) {
    set(type, is ? kube::ConditionStatus::yes : kube::ConditionStatus::no, reason, std::move(message));
  }

  void from_problem(std::string_view type, const std::optional<Problem>& problem, std::string_view otherwise,
                    std::string message = {}) {
    if (problem) {
      set(type, false, problem->reason, problem->message);
    } else {
      set(type, true, otherwise, std::move(message));
    }
  }

  /// A group that can't be where those are that it must be with.
  std::optional<Problem> no_room_together() const {
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        if (group.leaving || trouble_of(group.group->status) != "NoRoomTogether") continue;
        const auto* condition = kube::find_condition(group.group->status.conditions, "Scheduled");
        return Problem{"BackendCannotCoLocate", "group " + group.group->meta.name + ": " + condition->message};
      }
    }
    return std::nullopt;
  }

  /// A group of the surge that no node has room for.
  const GroupFacts* stuck_surge() const {
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        if (group.is_new && !group.leaving && group.unschedulable_s) return &group;
      }
    }
    return nullptr;
  }

  /// The last time anything got on: a group was made or became ready.
  std::int64_t last_progress_s() const {
    std::int64_t last = 0;
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        last = std::max(last, group.group->meta.created.unix_s());
        const auto* ready = kube::find_condition(group.group->status.conditions, "Ready");
        if (ready != nullptr) last = std::max(last, ready->last_transition.unix_s());
      }
    }
    return last;
  }

  void progress() {
    const auto& rollout = input_.service->spec.rollout;
    const bool done = available_all_ && updated_all_ && !input_.plan->rolling;
    const std::string step =
        "step " + std::to_string(input_.plan->roll.step) + " of " + std::to_string(input_.plan->roll.steps);
    const std::int64_t waited = input_.now.unix_s() - last_progress_s();
    const bool late = last_progress_s() > 0 && waited > rollout.progress_deadline_seconds;
    if (!done && !rollout.paused && !late && last_progress_s() > 0) {
      out_.look_again = std::chrono::seconds(rollout.progress_deadline_seconds - waited + 1);
    }
    if (done) {
      set("Progressing", true, "Complete", "every group has revision " + out_.status.update_revision);
    } else if (rollout.paused && input_.plan->rolling) {
      set("Progressing", kube::ConditionStatus::unknown, "Paused", step + "; rollout.paused is set");
    } else if (late && desired_ > 0) {
      set("Progressing", false, "ProgressDeadlineExceeded",
          step + ": nothing got on for " + std::to_string(rollout.progress_deadline_seconds) +
              " s. Look at groups that aren't ready, or go back to the last revision.");
    } else if (const auto* stuck = stuck_surge();
               stuck != nullptr && input_.plan->rolling && !input_.plan->surge_fallback) {
      set("Progressing", kube::ConditionStatus::unknown, "SurgeUnschedulable",
          step + ": group " + stuck->group->meta.name +
              " fits on no node. Free one, set rollout.surgeFallbackSeconds, or maxSurge 0 with maxUnavailable 1.");
    } else if (input_.plan->surge_fallback) {
      set("Progressing", true, "SurgeUnschedulable", step + ": the surge doesn't fit; going on by unavailability");
    } else if (input_.plan->rolling) {
      const bool partition = rollout.partition < 100 && available_all_;
      set("Progressing", true, partition ? "Partition" : "Rolling", step);
    } else {
      set("Progressing", true, "Scaling", out_.status.ready_groups + " groups are ready");
    }
  }

  void scheduled() {
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        if (group.scheduled || group.leaving) continue;
        const auto* condition = kube::find_condition(group.group->status.conditions, "Scheduled");
        set("Scheduled", false, condition == nullptr ? "Creating" : condition->reason,
            "group " + group.group->meta.name + (condition == nullptr ? " is new" : ": " + condition->message));
        return;
      }
    }
    set("Scheduled", true, "Bound", "");
  }

  /// The first group whose pods run into something: an image that doesn't pull, a crash, a mount that fails. States of
  /// the group's own are no trouble; what isn't bound stands in Scheduled.
  std::string trouble() const {
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        if (group.ready || group.leaving || !group.scheduled) continue;
        const auto* condition = kube::find_condition(group.group->status.conditions, "Ready");
        if (condition == nullptr || condition->reason == "MembersNotReady" || is_state(condition->reason)) continue;
        return "; group " + group.group->meta.name + ": " + condition->reason + ", " + condition->message;
      }
    }
    return {};
  }

  void readiness() {
    const bool available = some_available_ && input_.router_ready;
    const std::string_view why = !input_.router_ready ? "RouterNotReady" : "RoleWithoutGroup";
    set("Available", available, available ? "Serving" : why,
        available ? "" : out_.status.ready_groups + " groups are ready");
    const bool ready = available_all_ && updated_all_ && input_.router_ready && !input_.plan->rolling;
    std::string_view reason = !input_.router_ready   ? "RouterNotReady"
                              : input_.plan->rolling ? "Rolling"
                                                     : "GroupsNotReady";
    set("Ready", ready, ready ? "Ready" : reason,
        out_.status.ready_groups + " groups are ready" + (ready ? "" : trouble()));
  }

  /// The API server checks pods when they are made; its answer stands in the groups.
  void template_valid() {
    if (input_.template_) return set("TemplateValid", false, input_.template_->reason, input_.template_->message);
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        const auto* condition = kube::find_condition(group.group->status.conditions, "Scheduled");
        if (condition == nullptr || condition->reason != "PodRejected" || group.leaving) continue;
        set("TemplateValid", false, "PodRejected", "role " + role.name + ": " + condition->message);
        return;
      }
    }
    set("TemplateValid", true, "Valid", "");
  }

  void degraded() {
    if (!input_.refusal.empty()) return set("Degraded", true, input_.refusal_reason, input_.refusal);
    if (input_.gang.problem) return set("Degraded", true, input_.gang.problem->reason, input_.gang.problem->message);
    for (const auto& role : input_.plan->roles) {
      for (const auto& group : role.groups) {
        if (!group.failed || group.leaving) continue;
        const auto* condition = kube::find_condition(group.group->status.conditions, "Failed");
        return set("Degraded", true, condition->reason, "group " + group.group->meta.name + ": " + condition->message);
      }
    }
    certificate();
  }

  /// A certificate that ends soon, or has. The days are left out: a message that changes daily would be a write daily.
  void certificate() {
    const auto& end = input_.certificate_end_s;
    const std::int64_t left = end ? *end - input_.now.unix_s() : certificate_warning_s;
    if (left >= certificate_warning_s) return set("Degraded", false, "Working", "");
    const std::string when = kube::format_time(kube::Timestamp::from_seconds(*end));
    const std::string what = "Renew the Secrets of spec.security and restart routers and workers.";
    if (left <= 0)
      return set("Degraded", true, "CertificateExpired", "a TLS certificate ended at " + when + ". " + what);
    set("Degraded", true, "CertificateExpires", "a TLS certificate ends at " + when + ". " + what);
  }

  const StatusInput& input_;
  StatusResult out_;
  std::int32_t desired_ = 0, ready_ = 0;
  bool available_all_ = true, updated_all_ = true, some_available_ = true;
};

}  // namespace

bool is_troubled(const api::LLMServiceStatus& status, std::string_view type) {
  const auto* condition = kube::find_condition(status.conditions, type);
  if (condition == nullptr) return false;
  if (type == "Degraded") return condition->status == kube::ConditionStatus::yes;
  if (type == "Progressing" && condition->reason == "SurgeUnschedulable") return true;
  return condition->status == kube::ConditionStatus::no && condition->reason != "CacheNotReady";
}

StatusResult service_status(const StatusInput& input) {
  return StatusBuilder(input).run();
}

}  // namespace penstock::ctl
