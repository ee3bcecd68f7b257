// ClusterTopology: the cluster's domains from broad to narrow, each known by a node label. Written by administrators,
// status by the operator. Plain values; any thread. At most 10 levels.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/json/json.hpp"
#include "operator/api/common.hpp"

namespace penstock::ctl::api {

/// The narrowest domain; always known, also when the ClusterTopology does not name it.
inline constexpr std::string_view host_domain = "Host";
inline constexpr std::string_view host_label = "kubernetes.io/hostname";

struct TopologyLevel {
  std::string domain;
  std::string node_label;
  bool nvlink = false;  // GPUs of one instance reach each other's memory; a ComputeDomain makes sense there
};

struct ClusterTopologySpec {
  std::vector<TopologyLevel> levels;  // broad to narrow
};

struct TopologyLevelStatus {
  std::string domain;
  std::int32_t instances = 0;  // different values of the label
  std::int32_t nodes_missing_label = 0;
};

struct ClusterTopologyStatus {
  std::int64_t observed_generation = 0;
  kube::Conditions conditions;
  std::vector<TopologyLevelStatus> levels;
};

struct ClusterTopology {
  kube::ObjectMeta meta;
  ClusterTopologySpec spec;
  ClusterTopologyStatus status;
};

json::FieldResult<ClusterTopology> parse_cluster_topology(const boost::json::value& object);
boost::json::object to_json(const ClusterTopologySpec& spec);
boost::json::object to_json(const ClusterTopologyStatus& status);

}  // namespace penstock::ctl::api
