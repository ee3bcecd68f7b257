// The field tables of a role; for the .cpp files of operator/api. See fields.hpp. Pure; any thread.
#pragma once

#include "operator/api/fields.hpp"
#include "operator/api/role.hpp"

namespace penstock::ctl::api {

template <class Visitor, Same<RestartSpec> S>
void describe(Visitor& field, S& s) {
  field("policy", s.policy);
  field("inPlace", s.in_place);
  field("backoffSeconds", s.backoff_seconds);
  field("maxBackoffSeconds", s.max_backoff_seconds);
  field("budget", s.budget);
}

template <class Visitor, Same<GroupSpec> S>
void describe(Visitor& field, S& s) {
  field("size", s.size);
  field("startup", s.startup);
  field("restart", s.restart);
  field("nodeLostSeconds", s.node_lost_seconds);
}

template <class Visitor, Same<Parallelism> S>
void describe(Visitor& field, S& s) {
  field("tensor", s.tensor);
  field("pipeline", s.pipeline);
  field("data", s.data);
  field("expert", s.expert);
  field("context", s.context);
}

template <class Visitor, Same<DeviceClaim> S>
void describe(Visitor& field, S& s) {
  field.required("name", s.name);
  field.required("deviceClassName", s.device_class_name);
  field("count", s.count);
  field("selectors", s.selectors);
  field("scope", s.scope);
}

template <class Visitor, Same<Accelerators> S>
void describe(Visitor& field, S& s) {
  field("resourceName", s.resource_name);
  field("count", s.count);
  field("claims", s.claims);
}

template <class Visitor, Same<RdmaSpec> S>
void describe(Visitor& field, S& s) {
  field.required("resourceName", s.resource_name);
  field("count", s.count);
}

template <class Visitor, Same<NetworkSpec> S>
void describe(Visitor& field, S& s) {
  field("rdma", s.rdma);
  field("hostNetwork", s.host_network);
  field("multusNetworks", s.multus_networks);
}

template <class Visitor, Same<PackSpec> S>
void describe(Visitor& field, S& s) {
  field("required", s.required);
  field("preferred", s.preferred);
}

template <class Visitor, Same<SpreadSpec> S>
void describe(Visitor& field, S& s) {
  field.required("domain", s.domain);
  field("maxSkew", s.max_skew);
  field("when", s.when);
}

template <class Visitor, Same<RolePlacement> S>
void describe(Visitor& field, S& s) {
  field("pack", s.pack);
  field("spread", s.spread);
  field("exclusive", s.exclusive);
}

template <class Visitor, Same<LoraSpec> S>
void describe(Visitor& field, S& s) {
  field("maxAdapters", s.max_adapters);
  field("maxRank", s.max_rank);
}

template <class Visitor, Same<RoleScaling> S>
void describe(Visitor& field, S& s) {
  field("mode", s.mode);
  field("min", s.min);
  field("max", s.max);
  field("maxStepUp", s.max_step_up);
  field("stabilizationUpSeconds", s.stabilization_up_seconds);
  field("stabilizationDownSeconds", s.stabilization_down_seconds);
}

template <class Visitor, Same<RoleSpec> S>
void describe(Visitor& field, S& s) {
  field.required("name", s.name);
  field.required("type", s.type);
  field("replicas", s.replicas);
  field("group", s.group);
  field("parallelism", s.parallelism);
  field("accelerators", s.accelerators);
  field("network", s.network);
  field("sharedMemory", s.shared_memory);
  field("placement", s.placement);
  field("settings", s.settings);
  field("template", s.pod_template);
  field("drainSeconds", s.drain_seconds);
  field("startupSeconds", s.startup_seconds);
  field("lora", s.lora);
  field("scaling", s.scaling);
}

}  // namespace penstock::ctl::api
