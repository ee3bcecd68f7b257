// Finds the API server at start: a kubeconfig if one is named, else the pod that we run in. Blocking; start-up only.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/kube/core/cluster_config.hpp"

namespace penstock::kube {

struct FindOptions {
  std::string kubeconfig;  // a file; "" is the pod's own identity
  std::string context;     // of the kubeconfig; "" is its current one
  std::string service_account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
};

/// The error is one sentence that says what to do.
Result<ClusterConfig> find_cluster_config(
    const FindOptions& options, const std::function<std::optional<std::string>(const std::string& name)>& environment);

}  // namespace penstock::kube
