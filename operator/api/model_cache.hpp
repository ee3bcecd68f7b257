// ModelCache: weights that nodes hold before pods need them. NodeModelCache: what one node has of all caches; written
// by the agent of that node, owned by the Node. Plain values; any thread. A node reports at most 64 caches.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"

namespace penstock::ctl::api {

struct HostPathStorage {
  std::string path = "/var/lib/penstock/models";
};

struct PvcStorage {
  std::string claim_name;
  std::string path;  // in the volume; empty is its root
};

struct ImageVolumeStorage {
  std::string reference;  // an OCI reference with a digest
};

/// Exactly one is set.
struct CacheStorage {
  std::optional<HostPathStorage> host_path;
  std::optional<PvcStorage> pvc;
  std::optional<ImageVolumeStorage> image_volume;
};

struct ModelCacheSpec {
  std::string uri;
  std::string revision;
  std::string digest;  // "sha256:..." that the list of files must have; empty: any
  kube::Quantity size;
  std::map<std::string, std::string> node_selector;
  CountOrAll copies;  // nodes that hold one; all: every node that the selector matches
  CacheStorage storage;
  bool evictable = true;  // when a node runs out of room
  std::optional<NameRef> credentials_secret_ref;
};

struct ModelCacheStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;
  std::string digest;
  std::int32_t nodes_wanted = 0;
  std::int32_t nodes_ready = 0;
  std::int32_t nodes_failed = 0;
  std::int64_t bytes = 0;  // of one copy
};

struct ModelCache {
  kube::ObjectMeta meta;
  ModelCacheSpec spec;
  ModelCacheStatus status;
};

enum class CacheState : std::uint8_t { pending, downloading, ready, failed, evicting };

/// One cache on one node.
struct NodeCacheEntry {
  std::string cache;  // "namespace/name"
  CacheState state = CacheState::pending;
  std::string digest;
  std::string path;  // on the node
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;
  std::string message;  // why it failed, and when it is tried again
  std::optional<kube::Timestamp> last_transition_time;
};

struct NodeModelCacheSpec {
  std::string node_name;
  std::vector<std::string> caches;  // "namespace/name" of each that the node is to hold; written by the operator
};

struct NodeModelCacheStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;
  std::int64_t capacity_bytes = 0;  // of the file system that holds the caches
  std::int64_t available_bytes = 0;
  std::vector<NodeCacheEntry> entries;
};

struct NodeModelCache {
  kube::ObjectMeta meta;
  NodeModelCacheSpec spec;
  NodeModelCacheStatus status;
};

json::FieldResult<ModelCache> parse_model_cache(const boost::json::value& object);
boost::json::object to_json(const ModelCacheSpec& spec);
boost::json::object to_json(const ModelCacheStatus& status);
json::FieldResult<NodeModelCache> parse_node_model_cache(const boost::json::value& object);
boost::json::object to_json(const NodeModelCacheSpec& spec);
boost::json::object to_json(const NodeModelCacheStatus& status);

}  // namespace penstock::ctl::api
