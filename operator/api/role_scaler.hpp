// RoleScaler: the only replica count of a role whose scaling is not Fixed. The operator creates it once with the role's
// replicas as seed; after that HPA, KEDA, the planner or a person write spec.replicas, through the scale subresource.
// Plain values; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"

namespace penstock::ctl::api {

struct RoleScalerSpec {
  std::string service_name;
  std::string role;
  std::int32_t replicas = 1;  // groups
};

struct RoleScalerStatus {
  std::int64_t observed_generation = 0;
  std::int32_t replicas = 0;  // groups that exist
  std::int32_t ready_replicas = 0;
  std::string selector;  // of the leader pods of every revision
  std::optional<kube::Timestamp> last_scale_time;
  kube::Conditions conditions;
};

struct RoleScaler {
  kube::ObjectMeta meta;
  RoleScalerSpec spec;
  RoleScalerStatus status;
};

/// "<service>.<role>". The schema allows no other name, so a role cannot have two counts; neither part has a dot.
std::string role_scaler_name(std::string_view service, std::string_view role);

json::FieldResult<RoleScaler> parse_role_scaler(const boost::json::value& object);
boost::json::object to_json(const RoleScalerSpec& spec);
boost::json::object to_json(const RoleScalerStatus& status);

}  // namespace penstock::ctl::api
