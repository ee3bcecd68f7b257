// The field tables of RoleScaler and WorkerGroup; for the .cpp files of operator/api. See fields.hpp. Pure; any thread.
#pragma once

#include "operator/api/fields.hpp"
#include "operator/api/role_scaler.hpp"
#include "operator/api/worker_group.hpp"

namespace penstock::ctl::api {

template <class Visitor, Same<RoleScalerSpec> S>
void describe(Visitor& field, S& s) {
  field.required("serviceName", s.service_name);
  field.required("role", s.role);
  field("replicas", s.replicas);
}

template <class Visitor, Same<RoleScalerStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field("replicas", s.replicas);
  field("readyReplicas", s.ready_replicas);
  field("selector", s.selector);
  field("lastScaleTime", s.last_scale_time);
  field.conditions(s.conditions);
}

template <class Visitor, Same<WorkerGroupSpec> S>
void describe(Visitor& field, S& s) {
  field.required("serviceName", s.service_name);
  field.required("role", s.role);
  field.required("revision", s.revision);
  field("roleHash", s.role_hash);
  field.required("size", s.size);
}

template <class Visitor, Same<WorkerGroupStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("epoch", s.epoch);
  field("restarts", s.restarts);
  field("windowStart", s.window_start);
  field("nextRestartTime", s.next_restart_time);
  field("readyPods", s.ready_pods);
  field("packDomain", s.pack_domain);
  field("domain", s.domain);
  field("leaderAddress", s.leader_address);
}

}  // namespace penstock::ctl::api
