#include "common/kube/core/cluster_config.hpp"

#include <algorithm>
#include <charconv>

#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {
namespace {

Error unusable(std::string what) {
  return make_error(ErrorCode::invalid_argument, "kubeconfig: " + std::move(what));
}

Error refused(std::string what) {
  return make_error(ErrorCode::unsupported, "kubeconfig: " + std::move(what));
}

/// The entry `name` of a list like clusters, contexts or users; its inner object.
Result<const json::Object*> find_entry(const json::Object& document, std::string_view list, std::string_view inner,
                                       std::string_view name) {
  const json::Array* entries = array_at(document, {list});
  if (entries != nullptr) {
    for (const json::Value& entry : *entries) {
      const json::Object* object = entry.if_object();
      if (object == nullptr || text_at(*object, {"name"}) != name) continue;
      const json::Object* content = object_at(*object, {inner});
      if (content == nullptr) break;
      return content;
    }
  }
  return unusable("there is no " + std::string(inner) + " \"" + std::string(name) + "\"");
}

std::string text_of(const json::Object& object, std::string_view key) {
  return std::string(text_at(object, {key}).value_or(std::string_view()));
}

std::string resolve(std::string path, std::string_view folder) {
  if (path.empty() || path[0] == '/' || folder.empty()) return path;
  return std::string(folder) + "/" + path;
}

Result<PemSource> pem_source(const json::Object& object, const std::string& key, std::string_view folder) {
  PemSource source;
  if (const auto data = text_at(object, {key + "-data"}); data && !data->empty()) {
    const auto text = decode_base64(*data);
    if (!text) return unusable(key + "-data is not base64");
    source.text = *text;
    return source;
  }
  source.file = resolve(text_of(object, key), folder);
  return source;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (failure != std::errc() || end != text.data() + text.size() || port == 0) {
    return unusable("\"" + std::string(text) + "\" is no port");
  }
  return port;
}

Result<void> parse_server(std::string_view url, ClusterConfig& config) {
  constexpr std::string_view tls = "https://", plain = "http://";
  if (url.starts_with(tls)) {
    url.remove_prefix(tls.size());
  } else if (url.starts_with(plain)) {
    url.remove_prefix(plain.size());
    config.transport = Transport::plain;
    config.port = 80;
  } else {
    return unusable("server must be a URL that begins with https://");
  }
  const std::size_t slash = std::min(url.find('/'), url.size());
  config.base_path = url.substr(slash);
  while (config.base_path.ends_with('/')) config.base_path.pop_back();
  std::string_view host = url.substr(0, slash);
  if (host.find_first_of("@?# \t\r\n") != std::string_view::npos ||
      config.base_path.find_first_of("?# \t\r\n") != std::string::npos) {
    return unusable("server must be a plain URL");
  }
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return unusable("server has a '[' without a ']'");
    config.host = host.substr(1, end - 1);
    host.remove_prefix(end + 1);
  } else {
    const std::size_t colon = std::min(host.find(':'), host.size());
    config.host = host.substr(0, colon);
    host.remove_prefix(colon);
  }
  if (config.host.empty()) return unusable("server names no host");
  if (host.starts_with(':')) {
    PENSTOCK_TRY(config.port, parse_port(host.substr(1)));
  } else if (!host.empty()) {
    return unusable("server is no URL");
  }
  if (config.transport == Transport::plain && !is_loopback(config.host)) {
    return refused("server " + config.host + " is asked for without TLS, which is only done on the own machine");
  }
  return {};
}

Result<void> parse_cluster(const json::Object& cluster, std::string_view folder, ClusterConfig& config) {
  PENSTOCK_TRY_VOID(parse_server(text_at(cluster, {"server"}).value_or(std::string_view()), config));
  if (bool_at(cluster, {"insecure-skip-tls-verify"}).value_or(false)) {
    return refused("insecure-skip-tls-verify is not supported; name the authority by certificate-authority");
  }
  if (!text_of(cluster, "proxy-url").empty()) return refused("proxy-url is not supported");
  config.server_name = text_of(cluster, "tls-server-name");
  PENSTOCK_TRY(config.authority, pem_source(cluster, "certificate-authority", folder));
  return {};
}

Result<void> parse_user(const json::Object& user, std::string_view folder, ClusterConfig& config) {
  if (const json::Object* exec = object_at(user, {"exec"})) {
    return refused(
        "the user runs the program \"" + text_of(*exec, "command").substr(0, 128) +
        "\" for credentials (exec), which is not supported; use a token, a token file or a client certificate");
  }
  if (object_at(user, {"auth-provider"}) != nullptr) return refused("auth-provider is not supported");
  if (!text_of(user, "username").empty()) return refused("user name and password are not supported");
  PENSTOCK_TRY(config.client_certificate, pem_source(user, "client-certificate", folder));
  PENSTOCK_TRY(config.client_key, pem_source(user, "client-key", folder));
  if (config.client_certificate.empty() != config.client_key.empty()) {
    return unusable("client-certificate and client-key go together");
  }
  config.token = text_of(user, "token");
  config.token_file = resolve(text_of(user, "tokenFile"), folder);
  return {};
}

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0, padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      if (++padding > 2) return std::nullopt;
      continue;
    }
    const int digit = digit_of(c);
    if (digit < 0 || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (++count % 4 != 0) continue;
    out += static_cast<char>(bits >> 16 & 0xFF);
    out += static_cast<char>(bits >> 8 & 0xFF);
    out += static_cast<char>(bits & 0xFF);
    bits = 0;
  }
  if ((count + padding) % 4 != 0 || count % 4 == 1) return std::nullopt;
  if (count % 4 == 2) out += static_cast<char>(bits >> 4 & 0xFF);
  if (count % 4 == 3) {
    out += static_cast<char>(bits >> 10 & 0xFF);
    out += static_cast<char>(bits >> 2 & 0xFF);
  }
  return out;
}

Result<ClusterConfig> parse_kubeconfig(const json::Value& document, std::string_view folder, std::string_view context) {
  const json::Object* root = document.if_object();
  if (root == nullptr) return unusable("must be a mapping");
  const std::string name = context.empty() ? text_of(*root, "current-context") : std::string(context);
  if (name.empty()) return unusable("it has no current-context, and none is named");
  PENSTOCK_TRY(const json::Object* chosen, find_entry(*root, "contexts", "context", name));
  ClusterConfig config;
  PENSTOCK_TRY(const json::Object* cluster, find_entry(*root, "clusters", "cluster", text_of(*chosen, "cluster")));
  PENSTOCK_TRY_VOID(parse_cluster(*cluster, folder, config));
  if (const std::string user = text_of(*chosen, "user"); !user.empty()) {
    PENSTOCK_TRY(const json::Object* content, find_entry(*root, "users", "user", user));
    PENSTOCK_TRY_VOID(parse_user(*content, folder, config));
  }
  if (config.transport == Transport::plain && !(config.token.empty() && config.token_file.empty())) {
    return refused("a token is not sent without TLS");
  }
  if (std::string space = text_of(*chosen, "namespace"); !space.empty()) config.namespace_ = std::move(space);
  return config;
}

Result<ClusterConfig> in_cluster_config(std::string_view host, std::string_view port, std::string_view folder) {
  if (host.empty() || port.empty()) {
    return make_error(ErrorCode::not_found,
                      "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  ClusterConfig config;
  config.host = host;
  PENSTOCK_TRY(config.port, parse_port(port));
  config.authority.file = std::string(folder) + "/ca.crt";
  config.token_file = std::string(folder) + "/token";
  return config;
}

}  // namespace penstock::kube
