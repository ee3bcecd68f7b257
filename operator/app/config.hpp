// The settings of penstock-operator. One declaration serves options, environment, YAML, --print-config and the docs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/fields.hpp"
#include "common/config/program_settings.hpp"

namespace penstock::ctl {

/// Which gang scheduler an `Auto` service gets; `automatic` takes what the API server serves.
enum class GangChoice : std::uint8_t { automatic, kubernetes, kai, volcano, none };
std::span<const std::pair<std::string_view, GangChoice>> config_names(GangChoice);

/// How to reach the API server; both empty: from within a pod.
struct ClusterSettings {
  std::filesystem::path kubeconfig;
  std::string context;
  void fields(config::Fields& f);
};

struct OperatorConfig {
  ClusterSettings cluster;
  std::vector<std::string> namespaces;  // empty: all
  std::string router_image, worker_image;
  GangChoice gang_backend = GangChoice::automatic;
  std::uint32_t workers = 8;
  std::string lease_name = "penstock-operator";
  std::string lease_namespace;  // empty: that of this pod
  std::string admin_address = "127.0.0.1";
  std::uint16_t admin_port = 9180;
  Duration discovery_interval = std::chrono::minutes(5);
  Duration drain_grace = std::chrono::seconds(5);
  std::uint64_t seed = 0;
  config::LogSettings log;

  void fields(config::Fields& f);
  void validate(config::Problems& problems) const;
};

/// `penstock-operator apply-crds`.
struct ApplyCrdsConfig {
  ClusterSettings cluster;
  std::filesystem::path folder = "/usr/share/penstock/crds";
  Duration timeout = std::chrono::seconds(60);
  config::LogSettings log;

  void fields(config::Fields& f);
};

}  // namespace penstock::ctl
