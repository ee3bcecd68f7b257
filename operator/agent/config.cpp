#include "operator/agent/config.hpp"

#include "common/kube/model/quantity.hpp"
#include "operator/core/agent/source.hpp"

namespace penstock::ctl {

void AgentConfig::fields(config::Fields& f) {
  f.section("cluster", cluster);
  f.field("node", node, "Name of the node; empty is the environment's NODE_NAME.");
  f.field("folder", folder, "Folder that holds the copies.");
  f.field("host-path", host_path, "What that folder is called on the node: spec.storage.hostPath.path of caches.");
  f.field("budget", budget, "Most that all copies may take, as a quantity (500Gi); empty is what the disk has.");
  f.field("reserve", reserve, "What always stays free on the disk, as a quantity.");
  f.field("hub", hub, "Where hf:// URIs are fetched from.");
  f.field("hub-token-file", hub_token_file, "File with the token that the hub wants; empty is none.");
  f.field("hub-token-secret", hub_token_secret, "Name of the Secret that the token is from, for credentialsSecretRef.");
  f.field("ca-file", ca_file, "Authorities to trust for https, PEM; empty is the system's.");
  f.field("file-root", file_root, "Folder below which file:// URIs may read; empty refuses them.");
  f.field("progress-interval", progress_interval, "Between two statuses that tell of bytes only.");
  f.field("admin-address", admin_address, "Address of metrics and health pages.");
  f.field("admin-port", admin_port, "Port of metrics and health pages.");
  f.section("log", log);
}

void AgentConfig::validate(config::Problems& problems) const {
  for (const auto& [name, text] : {std::pair("budget", &budget), {"reserve", &reserve}}) {
    const auto quantity = text->empty() ? kube::Quantity() : kube::Quantity::parse(*text);
    if (!quantity || quantity->units() < 0) problems.add(name, "must be a quantity of bytes, like 500Gi");
  }
  if (!parse_address(hub)) problems.add("hub", "must be an http:// or https:// URL");
  if (!folder.is_absolute()) problems.add("folder", "must be an absolute path");
  if (progress_interval < std::chrono::seconds(1)) problems.add("progress-interval", "must be at least 1s");
}

std::int64_t bytes_of(const std::string& quantity) {
  const auto parsed = kube::Quantity::parse(quantity);
  return parsed ? parsed->units() : 0;
}

}  // namespace penstock::ctl
