#include "common/kube/client/find_config.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/config/yaml_value.hpp"

namespace penstock::kube {
namespace {

Result<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return make_error(ErrorCode::not_found, "cannot read " + path.string());
  return text;
}

Result<ClusterConfig> from_kubeconfig(const FindOptions& options) {
  const std::filesystem::path path = options.kubeconfig;
  PENSTOCK_TRY(const std::string text, read_text(path));
  const auto documents = config::parse_yaml(text);
  if (!documents) return make_error(ErrorCode::invalid_argument, path.string() + ": " + documents.error().message);
  if (documents->size() != 1) return make_error(ErrorCode::invalid_argument, path.string() + " holds no kubeconfig");
  auto parsed = parse_kubeconfig(documents->front(), path.parent_path().string(), options.context);
  if (!parsed) return make_error(parsed.error().code, path.string() + ": " + parsed.error().message);
  return parsed;
}

}  // namespace

Result<ClusterConfig> find_cluster_config(
    const FindOptions& options, const std::function<std::optional<std::string>(const std::string& name)>& environment) {
  if (!options.kubeconfig.empty()) return from_kubeconfig(options);
  PENSTOCK_TRY(ClusterConfig config,
               in_cluster_config(environment("KUBERNETES_SERVICE_HOST").value_or(""),
                                 environment("KUBERNETES_SERVICE_PORT").value_or(""), options.service_account_folder));
  if (const auto text = read_text(std::filesystem::path(options.service_account_folder) / "namespace")) {
    const std::string name = text->substr(0, text->find_first_of(" \r\n"));
    if (!name.empty()) config.namespace_ = name;
  }
  return config;
}

}  // namespace penstock::kube
