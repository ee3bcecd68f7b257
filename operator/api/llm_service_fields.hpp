// The field tables of LLMService; for the .cpp files of operator/api. See fields.hpp. Pure; any thread.
#pragma once

#include "operator/api/llm_service.hpp"
#include "operator/api/role_fields.hpp"

namespace penstock::ctl::api {

template <class Visitor, Same<ModelMount> S>
void describe(Visitor& field, S& s) {
  field("path", s.path);
}

template <class Visitor, Same<ModelSpec> S>
void describe(Visitor& field, S& s) {
  field.required("name", s.name);
  field("aliases", s.aliases);
  field("uri", s.uri);
  field("cacheRef", s.cache_ref);
  field("revision", s.revision);
  field("strictRevision", s.strict_revision);
  field("mount", s.mount);
}

template <class Visitor, Same<RatioSpec> S>
void describe(Visitor& field, S& s) {
  field.required("numerator", s.numerator);
  field.required("denominator", s.denominator);
  field("minPercent", s.min_percent);
  field("maxPercent", s.max_percent);
}

template <class Visitor, Same<ServiceScaling> S>
void describe(Visitor& field, S& s) {
  field("gpuBudget", s.gpu_budget);
  field("ratio", s.ratio);
}

template <class Visitor, Same<SloSpec> S>
void describe(Visitor& field, S& s) {
  field("ttftMs", s.ttft_ms);
  field("itlMs", s.itl_ms);
  field("percentile", s.percentile);
}

template <class Visitor, Same<CoLocateSpec> S>
void describe(Visitor& field, S& s) {
  field.required("roles", s.roles);
  field.required("domain", s.domain);
  field("enforcement", s.enforcement);
}

template <class Visitor, Same<ServicePlacement> S>
void describe(Visitor& field, S& s) {
  field("topologyRef", s.topology_ref);
  field("coLocate", s.co_locate);
  field("computeDomain", s.compute_domain);
}

template <class Visitor, Same<SchedulingSpec> S>
void describe(Visitor& field, S& s) {
  field("backend", s.backend);
  field("schedulerName", s.scheduler_name);
  field("priorityClassName", s.priority_class_name);
  field("queue", s.queue);
}

template <class Visitor, Same<RolloutSpec> S>
void describe(Visitor& field, S& s) {
  field("strategy", s.strategy);
  field("maxSurge", s.max_surge);
  field("maxUnavailable", s.max_unavailable);
  field("surgeFallbackSeconds", s.surge_fallback_seconds);
  field("partition", s.partition);
  field("paused", s.paused);
  field("compatibilityKey", s.compatibility_key);
  field("minReadySeconds", s.min_ready_seconds);
  field("progressDeadlineSeconds", s.progress_deadline_seconds);
  field("revisionHistoryLimit", s.revision_history_limit);
}

template <class Visitor, Same<HttpRouteSpec> S>
void describe(Visitor& field, S& s) {
  field.required("gatewayName", s.gateway_name);
  field("gatewayNamespace", s.gateway_namespace);
  field("hostnames", s.hostnames);
}

template <class Visitor, Same<GatewaySpec> S>
void describe(Visitor& field, S& s) {
  field("httpRoute", s.http_route);
  field("inferencePool", s.inference_pool);
}

template <class Visitor, Same<RouterServiceSpec> S>
void describe(Visitor& field, S& s) {
  field("type", s.type);
  field("port", s.port);
}

template <class Visitor, Same<RoutingSpec> S>
void describe(Visitor& field, S& s) {
  field("policy", s.policy);
  field("toolFormat", s.tool_format);
  field("reasoningFormat", s.reasoning_format);
  field("service", s.service);
  field("gateway", s.gateway);
}

template <class Visitor, Same<SecuritySpec> S>
void describe(Visitor& field, S& s) {
  field("apiKeysSecretRef", s.api_keys_secret_ref);
  field("tlsSecretRef", s.tls_secret_ref);
  field("workerTlsSecretRef", s.worker_tls_secret_ref);
  field("kvTransfer", s.kv_transfer);
}

template <class Visitor, Same<LLMServiceSpec> S>
void describe(Visitor& field, S& s) {
  field.required("model", s.model);
  field.required("roles", s.roles);
  field("scaling", s.scaling);
  field("slo", s.slo);
  field("placement", s.placement);
  field("scheduling", s.scheduling);
  field("rollout", s.rollout);
  field("routing", s.routing);
  field("security", s.security);
}

template <class Visitor, Same<RoleStatus> S>
void describe(Visitor& field, S& s) {
  field.required("name", s.name);
  field("desired", s.desired);
  field("groups", s.groups);
  field("updated", s.updated);
  field("scheduled", s.scheduled);
  field("ready", s.ready);
  field("available", s.available);
  field("restarting", s.restarting);
  field("draining", s.draining);
  field("gpus", s.gpus);
}

template <class Visitor, Same<LLMServiceStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("currentRevision", s.current_revision);
  field("updateRevision", s.update_revision);
  field("collisionCount", s.collision_count);
  field("roles", s.roles);
  field("readyGroups", s.ready_groups);
  field("gpus", s.gpus);
  field("schedulingBackend", s.scheduling_backend);
  field("endpoint", s.endpoint);
}

}  // namespace penstock::ctl::api
