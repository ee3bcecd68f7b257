// Where the API server is and how to prove who we are: read from a kubeconfig (already parsed from YAML) or from what
// Kubernetes puts into a pod. No file is read here: paths stay paths, since tokens and certificates are replaced while
// we run. Ways of proving that run a program or skip verification are refused by name. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/json/json.hpp"

namespace penstock::kube {

/// PEM text, or a file that has it.
struct PemSource {
  std::string file;
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

enum class Transport : std::uint8_t {
  tls,
  plain,  // only to a loopback address: `kubectl proxy`, tests
};

struct ClusterConfig {
  std::string host;
  std::uint16_t port = 443;
  Transport transport = Transport::tls;
  std::string base_path;    // "" or "/prefix"
  std::string server_name;  // whom the certificate must name, if not the host
  PemSource authority;      // empty: the system's
  PemSource client_certificate;
  PemSource client_key;
  std::string token;
  std::string token_file;  // wins over `token`
  std::string namespace_ = "default";
};

/// One context (the current one if not named). Relative paths are relative to `folder`, that of the kubeconfig.
Result<ClusterConfig> parse_kubeconfig(const json::Value& document, std::string_view folder,
                                       std::string_view context = {});

/// From KUBERNETES_SERVICE_HOST and _PORT and the folder of the service account.
Result<ClusterConfig> in_cluster_config(std::string_view host, std::string_view port,
                                        std::string_view folder = "/var/run/secrets/kubernetes.io/serviceaccount");

/// Standard alphabet, padding required, white space ignored.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace penstock::kube
