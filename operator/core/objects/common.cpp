#include "operator/core/objects/common.hpp"

#include "operator/core/hash.hpp"
#include "operator/core/names.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {

kube::StringMap service_labels(std::string_view service) {
  return {{label::managed_by, label::managed_by_value}, {label::service, label_value(service)}};
}

kube::StringMap role_labels(std::string_view service, const api::RoleSpec& role) {
  kube::StringMap labels = service_labels(service);
  labels.set(label::role, role.name);
  labels.set(label::role_type, role_type_label(role.type));
  return labels;
}

void own(Desired& desired, const kube::ResourceType& owner_type, const kube::ObjectMeta& owner) {
  desired.body["metadata"].as_object()["ownerReferences"] = json::Array{kube::controller_reference(owner_type, owner)};
}

void finish(Desired& desired, const kube::ResourceType& owner_type, const kube::ObjectMeta& owner) {
  own(desired, owner_type, owner);
  auto& metadata = desired.body["metadata"].as_object();
  const std::string hash = short_hash(canonical_hash(desired.body));
  auto& annotations = metadata["annotations"];
  if (!annotations.is_object()) annotations = json::Object{};
  annotations.get_object()[annotation::desired] = hash;
}

std::string_view desired_hash(const Desired& desired) {
  return kube::text_at(desired.body, {"metadata", "annotations", annotation::desired}).value_or("");
}

kube::Write apply(Desired desired, const kube::ObjectMeta* existing) {
  kube::Apply write;
  write.type = desired.type;
  write.key = std::move(desired.key);
  write.body = std::move(desired.body);
  write.field_manager = field_manager;
  write.force = existing == nullptr ? kube::Force::no : kube::Force::yes;
  return write;
}

std::string keys_name(std::string_view service) {
  return bounded_name({service, "keys"}, 63);
}
std::string router_name(std::string_view service) {
  return bounded_name({service, "router"}, 52);
}
std::string public_name(std::string_view service) {
  return bounded_name({service}, 63);
}
std::string gangs_name(std::string_view service) {
  return bounded_name({service, "gangs"}, 63);
}

}  // namespace penstock::ctl
