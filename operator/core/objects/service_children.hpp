// What a service has once, whatever its groups: the router with its rights and options, Services, budgets, network
// policies, optional routes. In order of creation, since a crash may come between any two. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "operator/core/context.hpp"
#include "operator/core/objects/common.hpp"
#include "operator/core/resolve.hpp"

namespace penstock::ctl {

struct ServiceInput {
  const api::LLMService* service = nullptr;
  const ResolvedRole* router = nullptr;
  std::string router_image;
  const Capabilities* capabilities = nullptr;
  std::vector<std::pair<const api::RoleSpec*, std::int32_t>> workers;  // with the groups wanted of each
  bool has_gangs = false;  // groups of several pods are wanted or still there
};

std::vector<Desired> service_children(const ServiceInput& input);

/// The Secret that router and workers share: key of block hashes, key of transfer tickets. It is made once and never
/// read: the operator has no right to read Secrets. `ticket` and `block_hash` are 32 random bytes each.
kube::Create keys_secret(const api::LLMService& service, std::string_view ticket, std::string_view block_hash);

/// "http://chat.default.svc:8000/v1"
std::string endpoint(const api::LLMService& service);

namespace detail {
Desired make_child(const ServiceInput& input, const kube::ResourceType& type, std::string name);
Desired router_deployment(const ServiceInput& input);
Desired router_options(const ServiceInput& input);
std::vector<Desired> router_rights(const ServiceInput& input);
std::vector<Desired> network_policies(const ServiceInput& input);
std::vector<Desired> gateway_objects(const ServiceInput& input);
json::Object selector_of(const ServiceInput& input, std::string_view role_type);
}  // namespace detail

}  // namespace penstock::ctl
