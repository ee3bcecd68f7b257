// LLMService: a served model with its router and worker roles. Written by users, status by the operator's service
// reconciler alone. Members' initial values are the schema's defaults; what depends on other fields is absent here and
// is worked out by operator/core. Plain values; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"
#include "operator/api/role.hpp"

namespace penstock::ctl::api {

enum class Enforcement : std::uint8_t { preferred, required };
enum class ComputeDomainMode : std::uint8_t {
  automatic,  // when a group has several pods and is packed into an NVLink domain
  never,
  always,
};
enum class SchedulingBackend : std::uint8_t { automatic, kubernetes, kai, volcano, none };
enum class RolloutStrategy : std::uint8_t { coordinated, recreate };
enum class RoutingPolicy : std::uint8_t { kv_aware, least_load, round_robin, random };
enum class ToolFormat : std::uint8_t { automatic, none, hermes, llama3_json, mistral, qwen3_coder };
enum class ReasoningFormat : std::uint8_t { automatic, none, think };
enum class RouterServiceType : std::uint8_t { cluster_ip, node_port, load_balancer };
enum class KvTransfer : std::uint8_t { trusted_fabric, off };

struct ModelMount {
  std::string path = "/models";
};

struct ModelSpec {
  std::string name;  // as clients write it
  std::vector<std::string> aliases;
  std::string uri;  // hf:// s3:// gs:// oci:// pvc:// file://; empty if cache_ref is set
  std::optional<NameRef> cache_ref;
  std::string revision;
  bool strict_revision = false;
  ModelMount mount;
};

/// Bounds on groups(numerator) / groups(denominator), in percent: 100 is one to one.
struct RatioSpec {
  std::string numerator;  // role name
  std::string denominator;
  std::optional<std::int32_t> min_percent;
  std::optional<std::int32_t> max_percent;
};

struct ServiceScaling {
  std::optional<std::int32_t> gpu_budget;  // GPUs of all roles together
  std::optional<RatioSpec> ratio;
};

struct SloSpec {
  std::optional<std::int32_t> ttft_ms;
  std::optional<std::int32_t> itl_ms;
  std::int32_t percentile = 95;
};

struct CoLocateSpec {
  std::vector<std::string> roles;
  std::string domain;
  Enforcement enforcement = Enforcement::preferred;
};

struct ServicePlacement {
  NameRef topology_ref{"default"};
  std::optional<CoLocateSpec> co_locate;
  ComputeDomainMode compute_domain = ComputeDomainMode::automatic;
};

struct SchedulingSpec {
  SchedulingBackend backend = SchedulingBackend::automatic;
  std::string scheduler_name;
  std::string priority_class_name;
  std::string queue;
};

struct RolloutSpec {
  RolloutStrategy strategy = RolloutStrategy::coordinated;
  CountOrPercent max_surge{1, false};
  CountOrPercent max_unavailable{0, false};
  std::int32_t surge_fallback_seconds = 0;  // 0 is off
  std::int32_t partition = 100;             // percent of the groups that may have the new revision
  bool paused = false;
  std::string compatibility_key;  // empty: the revision is the key
  std::int32_t min_ready_seconds = 0;
  std::int32_t progress_deadline_seconds = 3600;
  std::int32_t revision_history_limit = 5;
};

struct HttpRouteSpec {
  std::string gateway_name;
  std::string gateway_namespace;  // empty: that of the service
  std::vector<std::string> hostnames;
};

struct GatewaySpec {
  std::optional<HttpRouteSpec> http_route;
  bool inference_pool = false;
};

struct RouterServiceSpec {
  RouterServiceType type = RouterServiceType::cluster_ip;
  std::int32_t port = 8000;
};

struct RoutingSpec {
  RoutingPolicy policy = RoutingPolicy::kv_aware;
  ToolFormat tool_format = ToolFormat::automatic;  // automatic: by the chat template
  ReasoningFormat reasoning_format = ReasoningFormat::automatic;
  RouterServiceSpec service;
  GatewaySpec gateway;
};

struct SecuritySpec {
  std::optional<NameRef> api_keys_secret_ref;    // key "keys.yaml"; absent: anyone who reaches the Service may call
  std::optional<NameRef> tls_secret_ref;         // of the public API, tls.crt and tls.key; absent: plaintext
  std::optional<NameRef> worker_tls_secret_ref;  // between router and workers, with ca.crt; absent: plaintext
  KvTransfer kv_transfer = KvTransfer::trusted_fabric;
};

struct LLMServiceSpec {
  ModelSpec model;
  std::vector<RoleSpec> roles;  // one router with one replica is meant if none is of type router
  ServiceScaling scaling;
  std::optional<SloSpec> slo;
  ServicePlacement placement;
  SchedulingSpec scheduling;
  RolloutSpec rollout;
  RoutingSpec routing;
  SecuritySpec security;
};

/// Counts are groups, except gpus.
struct RoleStatus {
  std::string name;
  std::int32_t desired = 0;
  std::int32_t groups = 0;
  std::int32_t updated = 0;  // of the update revision
  std::int32_t scheduled = 0;
  std::int32_t ready = 0;
  std::int32_t available = 0;  // ready for minReadySeconds
  std::int32_t restarting = 0;
  std::int32_t draining = 0;
  std::int32_t gpus = 0;
};

struct LLMServiceStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;
  std::string current_revision;
  std::string update_revision;
  std::int32_t collision_count = 0;
  std::vector<RoleStatus> roles;
  std::string ready_groups;  // "3/4": ready of desired, over all worker roles, for kubectl get
  std::int32_t gpus = 0;     // of all roles
  std::string scheduling_backend;
  std::string endpoint;  // URL of the Service
};

struct LLMService {
  kube::ObjectMeta meta;
  LLMServiceSpec spec;
  LLMServiceStatus status;
};

json::FieldResult<LLMService> parse_llm_service(const boost::json::value& object);
boost::json::object to_json(const LLMServiceSpec& spec);
boost::json::object to_json(const LLMServiceStatus& status);
/// One resolved role in the schema's form, for the canonical hash and the ControllerRevision.
boost::json::object to_json(const RoleSpec& role);
json::FieldResult<RoleSpec> parse_role(const boost::json::value& role, const json::Path& path = {});

}  // namespace penstock::ctl::api
