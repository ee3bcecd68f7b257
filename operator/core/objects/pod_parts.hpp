// Parts of a worker pod: volumes, devices, security, placement. For the .cpp files of operator/core/objects. Pure.
#pragma once

#include "operator/core/objects/pod.hpp"

namespace penstock::ctl {

inline constexpr std::string_view worker_tls_path = "/etc/penstock/worker-tls";
/// What the certificate in that Secret is for: all pods show the same one, and their addresses are not known
/// beforehand.
inline constexpr std::string_view worker_tls_name = "penstock-worker";

json::Array volumes(const PodInput& input);
json::Array volume_mounts(const PodInput& input);
json::Object container_resources(const PodInput& input);
json::Array pod_claims(const PodInput& input);
json::Object pod_security();
json::Object container_security(const api::RoleSpec& role);
/// Spread, exclusive, co-location, the nodes that hold the weights.
void place(const PodInput& input, json::Object& spec);

std::string claim_template_name(std::string_view group, std::string_view claim);
std::string group_claim_name(std::string_view group, std::uint64_t epoch, std::string_view claim);
std::string compute_domain_claim(std::string_view gang);  // the claim template that a ComputeDomain makes

}  // namespace penstock::ctl
