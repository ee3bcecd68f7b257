// How the programs of this folder reach the API server. Any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/kube/client/client.hpp"
#include "common/kube/client/find_config.hpp"

namespace penstock::bench {

inline Result<kube::ClusterConfig> find_cluster(const std::string& kubeconfig) {
  kube::FindOptions options;
  options.kubeconfig = kubeconfig;
  return kube::find_cluster_config(options, [](const std::string&) { return std::optional<std::string>(); });
}

/// Calls wait for a free connection as long as it takes: these programs are bounded by connections, not by time.
inline kube::ClientOptions client_options(std::string user_agent, std::size_t connections) {
  kube::ClientOptions options;
  options.connections_max = connections;
  options.call_timeout = std::chrono::minutes(5);
  options.user_agent = std::move(user_agent);
  return options;
}

}  // namespace penstock::bench
