// One role of an LLMService: how many gangs, of which shape, where they go and how they live. Units are in the names;
// a *group* is one gang of pods, that is one replica of the role. Members' initial values are the schema's defaults.
// Plain values; any thread. A service has at most 16 roles.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/common.hpp"

namespace penstock::ctl::api {

enum class RoleType : std::uint8_t { router, unified, prefill, decode, encode };
enum class StartupOrder : std::uint8_t { parallel, leader_first };
enum class RestartPolicy : std::uint8_t {
  group,  // any lost pod restarts the whole gang as a new epoch
  pod,    // only the lost pod is made again
  none,   // nothing is restarted; the group stays Failed
};
enum class InPlaceRestart : std::uint8_t { never, prefer };
enum class ClaimScope : std::uint8_t { pod, group };
enum class WhenUnsatisfiable : std::uint8_t { schedule_anyway, do_not_schedule };
enum class ScalingMode : std::uint8_t {
  fixed,     // roles[].replicas is the count
  external,  // a RoleScaler that users, HPA or KEDA write
  slo,       // a RoleScaler that the planner writes
};

struct RestartSpec {
  std::optional<RestartPolicy> policy;  // absent: group if the group has more than one pod, else pod
  InPlaceRestart in_place = InPlaceRestart::never;
  std::int32_t backoff_seconds = 10;  // doubles up to the maximum; back to this after an hour of health
  std::int32_t max_backoff_seconds = 600;
  std::int32_t budget = 10;  // restarts of one group in a window of 3600 s; 0 is no limit
};

struct GroupSpec {
  std::int32_t size = 1;  // pods
  StartupOrder startup = StartupOrder::parallel;
  RestartSpec restart;
  std::int32_t node_lost_seconds = 120;
};

struct Parallelism {
  std::int32_t tensor = 1;
  std::int32_t pipeline = 1;
  std::int32_t data = 1;
  std::int32_t expert = 1;
  std::int32_t context = 1;
};

struct DeviceClaim {
  std::string name;
  std::string device_class_name;
  std::int32_t count = 1;
  std::vector<std::string> selectors;  // CEL over a device
  ClaimScope scope = ClaimScope::pod;
};

struct Accelerators {
  std::string resource_name = "nvidia.com/gpu";
  std::optional<std::int32_t> count;  // a pod; absent: 1 without claims, none with them. 0 is a CPU role.
  std::vector<DeviceClaim> claims;    // instead of count
};

struct RdmaSpec {
  std::string resource_name;
  std::int32_t count = 1;
};

struct NetworkSpec {
  std::optional<RdmaSpec> rdma;
  bool host_network = false;  // ports are then chosen by the kernel
  std::vector<std::string> multus_networks;
};

/// Names of a ClusterTopology's domains, or Host; empty is none.
struct PackSpec {
  std::string required;
  std::string preferred;
};

struct SpreadSpec {
  std::string domain;
  std::int32_t max_skew = 1;  // groups
  WhenUnsatisfiable when = WhenUnsatisfiable::schedule_anyway;
};

struct RolePlacement {
  std::optional<PackSpec> pack;
  std::optional<SpreadSpec> spread;
  std::string exclusive;  // one group of this service per instance of the domain; empty is off
};

struct LoraSpec {
  std::int32_t max_adapters = 0;  // 0 is off
  std::int32_t max_rank = 16;
};

struct RoleScaling {
  ScalingMode mode = ScalingMode::fixed;
  std::int32_t min = 1;             // groups
  std::optional<std::int32_t> max;  // groups; needed unless fixed
  CountOrPercent max_step_up{50, true};
  std::int32_t stabilization_up_seconds = 0;
  std::int32_t stabilization_down_seconds = 600;
};

struct RoleSpec {
  std::string name;
  RoleType type = RoleType::unified;
  std::int32_t replicas = 1;  // groups; only a seed unless scaling is fixed
  GroupSpec group;
  Parallelism parallelism;
  Accelerators accelerators;
  NetworkSpec network;
  kube::Quantity shared_memory = kube::Quantity::of(std::int64_t{8} << 30, kube::Quantity::Format::binary);
  RolePlacement placement;
  std::map<std::string, std::string> settings;  // of the program, by the names it has in YAML ("kv-pool": "2GiB")
  boost::json::object pod_template;             // "template": a pod template, not looked into here
  std::int32_t drain_seconds = 300;             // pods get 30 s more than this
  std::int32_t startup_seconds = 1800;
  LoraSpec lora;
  RoleScaling scaling;
};

}  // namespace penstock::ctl::api
