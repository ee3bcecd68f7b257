#include "operator/reconcilers/scaling.hpp"

#include <algorithm>

#include "operator/api/types.hpp"
#include "operator/core/group.hpp"
#include "operator/core/objects/common.hpp"

namespace penstock::ctl {
namespace {

constexpr Duration planner_period = std::chrono::seconds(15);

std::int32_t clamp(std::int32_t groups, const api::RoleScaling& scaling) {
  return std::clamp(groups, scaling.min, std::max(scaling.min, scaling.max.value_or(groups)));
}

kube::Write make_scaler(const api::LLMService& service, const api::RoleSpec& role, std::int32_t seed) {
  kube::Create out{api::role_scalers, service.meta.namespace_, {}};
  const kube::Key key{service.meta.namespace_, api::role_scaler_name(service.meta.name, role.name)};
  out.body = kube::make_object(out.type, key, role_labels(service.meta.name, role));
  out.body["metadata"].as_object()["ownerReferences"] =
      json::Array{kube::controller_reference(api::llm_services, service.meta)};
  api::RoleScalerSpec spec;
  spec.service_name = service.meta.name;
  spec.role = role.name;
  spec.replicas = seed;
  out.body["spec"] = api::to_json(spec);
  return out;
}

struct LiveCount {
  std::int32_t all = 0, ready = 0, starting = 0;
};

LiveCount count(const api::LLMService& service, const api::RoleSpec& role, const Stores& stores, kube::Timestamp now) {
  LiveCount out;
  for (const auto* group : stores.groups.owned_by(service.meta.uid)) {
    if (group->spec.role != role.name || group->meta.deleted || drain_deadline(group->meta)) continue;
    ++out.all;
    const bool ready = kube::is_true(group->status.conditions, "Ready");
    out.ready += ready;
    out.starting += !ready && now.unix_s() - group->meta.created.unix_s() < role.startup_seconds;
  }
  return out;
}

/// The planner's last word on a scaler: "<replicas> <reason>". Another number in the spec was written by someone else.
bool written_by_another(const api::RoleScaler& scaler) {
  const auto note = scaler.meta.annotations.find(annotation::scale_reason);
  if (!note) return false;
  return parse_decimal(note->substr(0, note->find(' '))) != static_cast<std::uint64_t>(scaler.spec.replicas);
}

kube::Write write_count(const api::RoleScaler& scaler, const RoleDecision& decision) {
  kube::Patch out{api::role_scalers, scaler.meta.key(), "", kube::PatchKind::merge, {}, {}, std::string(field_manager)};
  const std::string note = std::to_string(decision.groups) + " " + std::string(to_string(decision.reason));
  out.body = json::Object{{"metadata", json::Object{{"annotations", json::Object{{annotation::scale_reason, note}}}}},
                          {"spec", json::Object{{"replicas", decision.groups}}}};
  out.preconditions = {scaler.meta.uid, scaler.meta.resource_version};
  return out;
}

class SloPlan {
 public:
  SloPlan(const api::LLMService& service, const Stores& stores, const Context& context)
      : service_(service), stores_(stores), context_(context) {}

  void add(const ResolvedRole& role, const api::RoleScaler& scaler) {
    const auto& scaling = role.spec.scaling;
    const std::int64_t since = scaler.status.last_scale_time
                                   ? context_.now.unix_s() - scaler.status.last_scale_time->unix_s()
                                   : std::int64_t{24} * 3600;
    const LiveCount live = count(service_, role.spec, stores_, context_.now);
    RoleSignals out;
    out.role = role.spec.name;
    out.wanted = static_cast<std::uint32_t>(scaler.spec.replicas);
    out.ready = static_cast<std::uint32_t>(live.ready);
    out.starting = static_cast<std::uint32_t>(live.starting);
    out.min = static_cast<std::uint32_t>(scaling.min);
    out.max = static_cast<std::uint32_t>(scaling.max.value_or(std::max(scaling.min, scaler.spec.replicas)));
    out.step_up_max =
        static_cast<std::uint32_t>(std::max<std::int64_t>(1, scaling.max_step_up.rounded_up(scaler.spec.replicas)));
    out.gpus_a_group = static_cast<std::uint32_t>(gpus_a_pod(role.spec) * role.spec.group.size);
    out.hold_up = std::chrono::seconds(scaling.stabilization_up_seconds);
    out.hold_down = std::chrono::seconds(scaling.stabilization_down_seconds);
    out.since_scaled = std::chrono::seconds(since);
    const auto& slo = service_.spec.slo;
    const bool prefill = role.spec.type == api::RoleType::prefill;
    if (slo) out.latency_slo_ms = (prefill ? slo->ttft_ms : slo->itl_ms).value_or(0);
    if (context_.figures != nullptr) figures(out);
    signals_.push_back(std::move(out));
    scalers_.push_back(&scaler);
  }

  void run(ScalingPlan& plan) {
    if (signals_.empty()) return;
    plan.look_again = planner_period;
    for (std::size_t i = 0; i < scalers_.size(); ++i) {
      const bool recent = signals_[i].since_scaled < signals_[i].hold_down;
      if (!written_by_another(*scalers_[i]) || !recent) continue;
      plan.problem =
          Problem{"Conflict", "RoleScaler " + scalers_[i]->meta.name +
                                  " was written by another manager; the planner waits. Remove that writer, or "
                                  "set the role's scaling.mode to External."};
      return;
    }
    PlannerLimits limits;
    const auto& scaling = service_.spec.scaling;
    if (scaling.gpu_budget) limits.gpu_budget = static_cast<std::uint32_t>(*scaling.gpu_budget);
    if (scaling.ratio) {
      RatioLimits ratio{scaling.ratio->numerator, scaling.ratio->denominator, {}, {}};
      if (scaling.ratio->min_percent) ratio.min_percent = static_cast<std::uint32_t>(*scaling.ratio->min_percent);
      if (scaling.ratio->max_percent) ratio.max_percent = static_cast<std::uint32_t>(*scaling.ratio->max_percent);
      limits.ratio = std::move(ratio);
    }
    const auto decisions = plan_slo(signals_, limits);
    for (const bool shrink : {true, false}) {
      for (std::size_t i = 0; i < decisions.size(); ++i) {
        const bool shrinks = decisions[i].groups < signals_[i].wanted;
        if (decisions[i].groups == signals_[i].wanted || shrinks != shrink) continue;
        plan.writes.push_back(write_count(*scalers_[i], decisions[i]));
      }
    }
    for (std::size_t i = 0; i < decisions.size(); ++i) {
      plan.summary += (i == 0 ? "" : ", ") + signals_[i].role + ": " + std::string(to_string(decisions[i].reason));
    }
  }

 private:
  void figures(RoleSignals& out) const {
    const auto& all = *context_.figures;
    if (const auto at = all.loads.find(out.role); at != all.loads.end()) out.groups = at->second;
    if (const auto at = all.demand.find(out.role); at != all.demand.end()) out.demand = at->second;
    if (const auto at = all.rate_at_slo.find(out.role); at != all.rate_at_slo.end()) out.rate_at_slo = at->second;
  }

  const api::LLMService& service_;
  const Stores& stores_;
  const Context& context_;
  std::vector<RoleSignals> signals_;
  std::vector<const api::RoleScaler*> scalers_;
};

}  // namespace

ScalingPlan plan_scaling(const api::LLMService& service, const ResolvedService& resolved, const Stores& stores,
                         const Context& context) {
  ScalingPlan plan;
  SloPlan slo(service, stores, context);
  for (const auto& role : resolved.workers) {
    const auto& scaling = role.spec.scaling;
    if (scaling.mode == api::ScalingMode::fixed) {
      plan.desired.push_back(role.spec.replicas);
      continue;
    }
    const auto* scaler =
        stores.scalers.find({service.meta.namespace_, api::role_scaler_name(service.meta.name, role.spec.name)});
    if (scaler == nullptr) {
      // A scaler that someone deleted takes no capacity with it.
      const std::int32_t live = count(service, role.spec, stores, context.now).all;
      const std::int32_t seed = clamp(live > 0 ? live : role.spec.replicas, scaling);
      plan.writes.push_back(make_scaler(service, role.spec, seed));
      plan.desired.push_back(seed);
      continue;
    }
    plan.desired.push_back(clamp(scaler->spec.replicas, scaling));
    if (plan.summary.empty()) plan.summary = "by RoleScaler";
    if (scaling.mode == api::ScalingMode::slo && !scaler->meta.deleted) slo.add(role, *scaler);
  }
  slo.run(plan);
  return plan;
}

}  // namespace penstock::ctl
