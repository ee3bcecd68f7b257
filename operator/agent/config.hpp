// The settings of `penstock-operator agent`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/config/fields.hpp"
#include "common/config/program_settings.hpp"
#include "operator/app/config.hpp"

namespace penstock::ctl {

struct AgentConfig {
  ClusterSettings cluster;
  std::string node;  // empty: NODE_NAME
  std::filesystem::path folder = "/models";
  std::string host_path = "/var/lib/penstock/models";
  std::string budget;           // a quantity; empty: the disk is the limit
  std::string reserve = "2Gi";  // a quantity
  std::string hub = "https://huggingface.co";
  std::string hub_token_secret;
  std::filesystem::path hub_token_file, ca_file, file_root;
  Duration progress_interval = std::chrono::seconds(5);
  std::string admin_address = "127.0.0.1";
  std::uint16_t admin_port = 9180;
  config::LogSettings log;

  void fields(config::Fields& f);
  void validate(config::Problems& problems) const;
};

/// Of a quantity that validate() has let through; 0 for "".
std::int64_t bytes_of(const std::string& quantity);

}  // namespace penstock::ctl
