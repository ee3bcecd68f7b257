// The field tables of ModelCache, NodeModelCache, ModelAdapter and ClusterTopology; for the .cpp files of operator/api.
// See fields.hpp. Pure; any thread.
#pragma once

#include "operator/api/cluster_topology.hpp"
#include "operator/api/fields.hpp"
#include "operator/api/model_adapter.hpp"
#include "operator/api/model_cache.hpp"

namespace penstock::ctl::api {

template <class Visitor, Same<HostPathStorage> S>
void describe(Visitor& field, S& s) {
  field("path", s.path);
}

template <class Visitor, Same<PvcStorage> S>
void describe(Visitor& field, S& s) {
  field.required("claimName", s.claim_name);
  field("path", s.path);
}

template <class Visitor, Same<ImageVolumeStorage> S>
void describe(Visitor& field, S& s) {
  field.required("reference", s.reference);
}

template <class Visitor, Same<CacheStorage> S>
void describe(Visitor& field, S& s) {
  field("hostPath", s.host_path);
  field("pvc", s.pvc);
  field("imageVolume", s.image_volume);
}

template <class Visitor, Same<ModelCacheSpec> S>
void describe(Visitor& field, S& s) {
  field.required("uri", s.uri);
  field("revision", s.revision);
  field("digest", s.digest);
  field.required("size", s.size);
  field("nodeSelector", s.node_selector);
  field("copies", s.copies);
  field.required("storage", s.storage);
  field("evictable", s.evictable);
  field("credentialsSecretRef", s.credentials_secret_ref);
}

template <class Visitor, Same<ModelCacheStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("digest", s.digest);
  field("nodesWanted", s.nodes_wanted);
  field("nodesReady", s.nodes_ready);
  field("nodesFailed", s.nodes_failed);
  field("bytes", s.bytes);
}

template <class Visitor, Same<NodeCacheEntry> S>
void describe(Visitor& field, S& s) {
  field.required("cache", s.cache);
  field("state", s.state);
  field("digest", s.digest);
  field("path", s.path);
  field("bytes", s.bytes);
  field("bytesDone", s.bytes_done);
  field("message", s.message);
  field("lastTransitionTime", s.last_transition_time);
}

template <class Visitor, Same<NodeModelCacheSpec> S>
void describe(Visitor& field, S& s) {
  field.required("nodeName", s.node_name);
  field("caches", s.caches);
}

template <class Visitor, Same<NodeModelCacheStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("capacityBytes", s.capacity_bytes);
  field("availableBytes", s.available_bytes);
  field("entries", s.entries);
}

template <class Visitor, Same<ModelAdapterSpec> S>
void describe(Visitor& field, S& s) {
  field.required("serviceName", s.service_name);
  field("adapterName", s.adapter_name);
  field.required("uri", s.uri);
  field("revision", s.revision);
  field("rank", s.rank);
  field("placement", s.placement);
  field("pinned", s.pinned);
}

template <class Visitor, Same<ModelAdapterStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("endpointsWanted", s.endpoints_wanted);
  field("endpointsLoaded", s.endpoints_loaded);
  field("digest", s.digest);
}

template <class Visitor, Same<TopologyLevel> S>
void describe(Visitor& field, S& s) {
  field.required("domain", s.domain);
  field.required("nodeLabel", s.node_label);
  field("nvlink", s.nvlink);
}

template <class Visitor, Same<ClusterTopologySpec> S>
void describe(Visitor& field, S& s) {
  field.required("levels", s.levels);
}

template <class Visitor, Same<TopologyLevelStatus> S>
void describe(Visitor& field, S& s) {
  field.required("domain", s.domain);
  field("instances", s.instances);
  field("nodesMissingLabel", s.nodes_missing_label);
}

template <class Visitor, Same<ClusterTopologyStatus> S>
void describe(Visitor& field, S& s) {
  field("observedGeneration", s.observed_generation);
  field.conditions(s.conditions);
  field("levels", s.levels);
}

}  // namespace penstock::ctl::api
