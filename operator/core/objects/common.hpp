// What all objects that the operator makes have in common: labels, owner, and the hash of the desired object, by which
// a steady state is seen without comparing anything. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/json/json.hpp"
#include "common/kube/model/object_meta.hpp"
#include "common/kube/model/write.hpp"
#include "operator/api/llm_service.hpp"

namespace penstock::ctl {

/// A child as it should be. `body` is complete but for the owner and the annotation `penstock.dev/desired`.
struct Desired {
  kube::ResourceType type;
  kube::Key key;
  json::Object body;
};

/// Labels of everything that belongs to a service.
kube::StringMap service_labels(std::string_view service);
/// The same, and the role.
kube::StringMap role_labels(std::string_view service, const api::RoleSpec& role);

/// Adds the owner: it controls the object.
void own(Desired& desired, const kube::ResourceType& owner_type, const kube::ObjectMeta& owner);
/// Adds the owner and the hash: for what is applied again when it differs, which a pod never is.
void finish(Desired& desired, const kube::ResourceType& owner_type, const kube::ObjectMeta& owner);
/// Of a finished object.
std::string_view desired_hash(const Desired& desired);
/// Applies a finished object. `existing` may be null; fields are taken from other managers only if it is ours already.
kube::Write apply(Desired desired, const kube::ObjectMeta* existing);

// Names of what a service has once.
std::string keys_name(std::string_view service);    // Secret: ticket.key, block-hash.key
std::string router_name(std::string_view service);  // Deployment, ConfigMap, ServiceAccount, Role, RoleBinding, PDB
std::string public_name(std::string_view service);  // Service of the router
std::string gangs_name(std::string_view service);   // headless Service by which ranks find their leader

inline constexpr int public_port = 8000, control_port = 7000, transfer_port = 7001, admin_port = 9180;
inline constexpr std::string_view keys_path = "/etc/penstock/keys";

}  // namespace penstock::ctl
