#include "operator/app/config.hpp"

#include <array>

namespace penstock::ctl {

std::span<const std::pair<std::string_view, GangChoice>> config_names(GangChoice) {
  static constexpr std::array<std::pair<std::string_view, GangChoice>, 5> names{{{"Auto", GangChoice::automatic},
                                                                                 {"Kubernetes", GangChoice::kubernetes},
                                                                                 {"KAI", GangChoice::kai},
                                                                                 {"Volcano", GangChoice::volcano},
                                                                                 {"None", GangChoice::none}}};
  return names;
}

void ClusterSettings::fields(config::Fields& f) {
  f.field("kubeconfig", kubeconfig, "How to reach the API server from outside the cluster.");
  f.field("context", context, "Context of the kubeconfig; empty is its current one.");
}

void OperatorConfig::fields(config::Fields& f) {
  f.section("cluster", cluster);
  f.field("namespace", namespaces, "A namespace to serve; may be repeated. None is all of them.");
  f.field("router-image", router_image, "Image of routers whose template names none.");
  f.field("worker-image", worker_image, "Image of workers whose template names none.");
  f.field("gang-backend", gang_backend, "Gang scheduler of services that leave the choice to the operator.");
  f.field("workers", workers, "Reconciles of a kind at once.");
  f.field("lease-name", lease_name, "Lease that the leading replica holds.");
  f.field("lease-namespace", lease_namespace, "Where that lease is; empty is this pod's namespace.");
  f.field("admin-address", admin_address, "Address of metrics and health pages.");
  f.field("admin-port", admin_port, "Port of metrics and health pages.");
  f.field("discovery-interval", discovery_interval, "How often the API server is asked which groups it serves.");
  f.field("drain-grace", drain_grace, "How long reconciles may go on after SIGTERM.");
  f.field("seed", seed, "Seed of names and of jitter; 0 takes a random one.");
  f.section("log", log);
}

void OperatorConfig::validate(config::Problems& problems) const {
  if (router_image.empty()) problems.add("router-image", "is needed: routers get it");
  if (worker_image.empty()) problems.add("worker-image", "is needed: workers get it");
  if (workers == 0 || workers > 64) problems.add("workers", "must be from 1 to 64");
  if (lease_name.empty()) problems.add("lease-name", "must not be empty");
}

void ApplyCrdsConfig::fields(config::Fields& f) {
  f.section("cluster", cluster);
  f.field("folder", folder, "Folder of the definitions, YAML.");
  f.field("timeout", timeout, "Longest time for the API server to serve a definition.");
  f.section("log", log);
}

}  // namespace penstock::ctl
