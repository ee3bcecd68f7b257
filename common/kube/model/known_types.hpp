// The built-in and third-party kinds that Penstock reads or writes. Its own kinds are in operator/api. Constants.
#pragma once

#include "common/kube/model/resource_type.hpp"

namespace penstock::kube {

inline constexpr ResourceType pods{"", "v1", "Pod", "pods"};
inline constexpr ResourceType services{"", "v1", "Service", "services"};
inline constexpr ResourceType secrets{"", "v1", "Secret", "secrets"};
inline constexpr ResourceType config_maps{"", "v1", "ConfigMap", "configmaps"};
inline constexpr ResourceType service_accounts{"", "v1", "ServiceAccount", "serviceaccounts"};
inline constexpr ResourceType nodes{"", "v1", "Node", "nodes", Scope::cluster};
inline constexpr ResourceType namespaces{"", "v1", "Namespace", "namespaces", Scope::cluster};
inline constexpr ResourceType deployments{"apps", "v1", "Deployment", "deployments"};
inline constexpr ResourceType daemon_sets{"apps", "v1", "DaemonSet", "daemonsets"};
inline constexpr ResourceType controller_revisions{"apps", "v1", "ControllerRevision", "controllerrevisions"};
inline constexpr ResourceType disruption_budgets{"policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"};
inline constexpr ResourceType network_policies{"networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"};
inline constexpr ResourceType leases{"coordination.k8s.io", "v1", "Lease", "leases"};
inline constexpr ResourceType events{"events.k8s.io", "v1", "Event", "events"};
inline constexpr ResourceType endpoint_slices{"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"};
inline constexpr ResourceType resource_claims{"resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"};
inline constexpr ResourceType resource_claim_templates{"resource.k8s.io", "v1", "ResourceClaimTemplate",
                                                       "resourceclaimtemplates"};
inline constexpr ResourceType custom_resource_definitions{"apiextensions.k8s.io", "v1", "CustomResourceDefinition",
                                                          "customresourcedefinitions", Scope::cluster};
inline constexpr ResourceType workloads{"scheduling.k8s.io", "v1beta1", "Workload", "workloads"};
inline constexpr ResourceType pod_groups{"scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups"};
inline constexpr ResourceType http_routes{"gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"};
inline constexpr ResourceType inference_pools{"inference.networking.k8s.io", "v1", "InferencePool", "inferencepools"};
inline constexpr ResourceType volcano_pod_groups{"scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"};
inline constexpr ResourceType kai_pod_groups{"scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups"};
inline constexpr ResourceType compute_domains{"resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains"};

}  // namespace penstock::kube
