// Everything that reconciles read: one cache a kind, filled by informers, or by the simulation. Owner: the strand of
// the operator; reconciles run on it and hold no pointer beyond their call. Bounded by what the API server holds of our
// labels.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/kube/core/store.hpp"
#include "operator/api/cluster_topology.hpp"
#include "operator/api/llm_service.hpp"
#include "operator/api/model_adapter.hpp"
#include "operator/api/model_cache.hpp"
#include "operator/api/role_scaler.hpp"
#include "operator/api/worker_group.hpp"
#include "operator/core/names.hpp"
#include "operator/core/observed.hpp"

// Made once, in stores.cpp.
extern template class penstock::kube::Store<penstock::ctl::api::LLMService>;
extern template class penstock::kube::Store<penstock::ctl::api::RoleScaler>;
extern template class penstock::kube::Store<penstock::ctl::api::WorkerGroup>;
extern template class penstock::kube::Store<penstock::ctl::api::ModelCache>;
extern template class penstock::kube::Store<penstock::ctl::api::NodeModelCache>;
extern template class penstock::kube::Store<penstock::ctl::api::ModelAdapter>;
extern template class penstock::kube::Store<penstock::ctl::api::ClusterTopology>;
extern template class penstock::kube::Store<penstock::ctl::Pod>;
extern template class penstock::kube::Store<penstock::ctl::Node>;
extern template class penstock::kube::Store<penstock::ctl::Deployment>;
extern template class penstock::kube::Store<penstock::ctl::Revision>;
extern template class penstock::kube::Store<penstock::ctl::Child>;

namespace penstock::ctl {

/// "pods", "podgroups.scheduling.k8s.io": how a type is named among children and in expectations.
std::string type_name(const kube::ResourceType& type);

struct Stores {
  kube::Store<api::LLMService> services;
  kube::Store<api::RoleScaler> scalers;
  kube::Store<api::WorkerGroup> groups{{std::string(label::service)}};
  kube::Store<api::ModelCache> caches;
  kube::Store<api::NodeModelCache> node_caches;
  kube::Store<api::ModelAdapter> adapters;
  kube::Store<api::ClusterTopology> topologies;
  kube::Store<Pod> pods{{std::string(label::group), std::string(label::service)}};
  kube::Store<Node> nodes;
  kube::Store<Deployment> deployments;
  kube::Store<Revision> revisions;
  /// All other kinds that the operator makes, by type_name(); a kind that isn't served has no entry.
  std::map<std::string, kube::Store<Child>, std::less<>> children;

  /// Makes an empty store for each kind of child that the cluster serves.
  void add_children(std::initializer_list<kube::ResourceType> types);
  const kube::Store<Child>* children_of(const kube::ResourceType& type) const;
};

/// What a group is made from; null if it isn't there.
const Revision* revision_of(const api::WorkerGroup& group, const Stores& stores);

}  // namespace penstock::ctl
