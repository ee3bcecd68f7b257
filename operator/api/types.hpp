// Where the custom resources live on the API server. Constants; any thread.
#pragma once

#include <string_view>

#include "common/kube/model/resource_type.hpp"

namespace penstock::ctl::api {

inline constexpr std::string_view api_group = "penstock.dev";
inline constexpr std::string_view api_group_version = "v1alpha1";

inline constexpr kube::ResourceType llm_services{api_group, api_group_version, "LLMService", "llmservices"};
inline constexpr kube::ResourceType role_scalers{api_group, api_group_version, "RoleScaler", "rolescalers"};
inline constexpr kube::ResourceType worker_groups{api_group, api_group_version, "WorkerGroup", "workergroups"};
inline constexpr kube::ResourceType model_caches{api_group, api_group_version, "ModelCache", "modelcaches"};
inline constexpr kube::ResourceType model_adapters{api_group, api_group_version, "ModelAdapter", "modeladapters"};
inline constexpr kube::ResourceType node_model_caches{api_group, api_group_version, "NodeModelCache", "nodemodelcaches",
                                                      kube::Scope::cluster};
inline constexpr kube::ResourceType cluster_topologies{api_group, api_group_version, "ClusterTopology",
                                                       "clustertopologies", kube::Scope::cluster};

}  // namespace penstock::ctl::api
