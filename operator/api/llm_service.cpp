#include "operator/api/llm_service.hpp"

#include "operator/api/llm_service_fields.hpp"

namespace penstock::ctl::api {

json::FieldResult<LLMService> parse_llm_service(const json::Value& object) {
  return read_resource<LLMService>(object);
}

json::Object to_json(const LLMServiceSpec& spec) {
  return write_object(spec);
}
json::Object to_json(const LLMServiceStatus& status) {
  return write_object(status);
}
json::Object to_json(const RoleSpec& role) {
  return write_object(role);
}

json::FieldResult<RoleSpec> parse_role(const json::Value& role, const json::Path& path) {
  RoleSpec spec;
  if (auto error = read(role, path, spec)) return std::move(*error);
  return spec;
}

}  // namespace penstock::ctl::api
