#include "operator/api/group_fields.hpp"

namespace penstock::ctl::api {

std::string role_scaler_name(std::string_view service, std::string_view role) {
  return std::string(service) + "." + std::string(role);
}

json::FieldResult<RoleScaler> parse_role_scaler(const json::Value& object) {
  return read_resource<RoleScaler>(object);
}
json::Object to_json(const RoleScalerSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const RoleScalerStatus& status) {
  return write_object(status);
}

json::FieldResult<WorkerGroup> parse_worker_group(const json::Value& object) {
  return read_resource<WorkerGroup>(object);
}
json::Object to_json(const WorkerGroupSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const WorkerGroupStatus& status) {
  return write_object(status);
}

}  // namespace penstock::ctl::api
