// Kubeconfigs that work and those that are refused, each by name.
#include "common/kube/core/cluster_config.hpp"

#include <gtest/gtest.h>

namespace penstock::kube {
namespace {

json::Value document(std::string_view cluster, std::string_view user) {
  const std::string text = R"({"current-context":"c","contexts":[{"name":"other","context":{}},
    {"name":"c","context":{"cluster":"k","user":"u","namespace":"team"}}],
    "clusters":[{"name":"k","cluster":)" +
                           std::string(cluster) + R"(}],
    "users":[{"name":"u","user":)" +
                           std::string(user) + "}]}";
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

std::string refusal(std::string_view cluster, std::string_view user = "{}") {
  const auto config = parse_kubeconfig(document(cluster, user), "/etc/k");
  EXPECT_FALSE(config) << cluster << user;
  return config ? "" : config.error().message;
}

constexpr std::string_view good = R"({"server":"https://api.example:6443/prefix/","certificate-authority":"ca.crt"})";

TEST(ClusterConfig, ReadsFilesRelativeToTheKubeconfig) {
  const auto config = parse_kubeconfig(
      document(good, R"({"client-certificate":"/abs/c.pem","client-key":"k.pem","tokenFile":"t"})"), "/etc/k");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->host, "api.example");
  EXPECT_EQ(config->port, 6443);
  EXPECT_EQ(config->base_path, "/prefix");
  EXPECT_EQ(config->authority.file, "/etc/k/ca.crt");
  EXPECT_EQ(config->client_certificate.file, "/abs/c.pem");
  EXPECT_EQ(config->client_key.file, "/etc/k/k.pem");
  EXPECT_EQ(config->token_file, "/etc/k/t");
  EXPECT_EQ(config->namespace_, "team");
}

TEST(ClusterConfig, TakesInlineDataBeforeFiles) {
  const auto config = parse_kubeconfig(
      document(R"({"server":"https://[fd00::1]","certificate-authority-data":"UEVN","tls-server-name":"kubernetes"})",
               R"({"token":"secret","client-certificate-data":"QQ==","client-key-data":"QkI="})"),
      "");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->host, "fd00::1");
  EXPECT_EQ(config->port, 443);
  EXPECT_EQ(config->authority.text, "PEM");
  EXPECT_EQ(config->client_certificate.text, "A");
  EXPECT_EQ(config->client_key.text, "BB");
  EXPECT_EQ(config->server_name, "kubernetes");
  EXPECT_EQ(config->token, "secret");
}

TEST(ClusterConfig, RefusesByName) {
  const auto names = [](const std::string& message, std::string_view word) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  names(refusal(good, R"({"exec":{"command":"aws"}})"), "\"aws\"");
  names(refusal(good, R"({"exec":{"command":"aws"}})"), "exec");
  names(refusal(good, R"({"auth-provider":{}})"), "auth-provider");
  names(refusal(good, R"({"username":"a"})"), "password");
  names(refusal(good, R"({"client-certificate":"a"})"), "client-key");
  names(refusal(R"({"server":"https://h","insecure-skip-tls-verify":true})"), "insecure-skip-tls-verify");
  names(refusal(R"({"server":"https://h","proxy-url":"http://p"})"), "proxy-url");
  names(refusal(R"({"server":"http://h"})"), "without TLS");
  names(refusal(R"({"server":"http://127.0.0.1:8001"})", R"({"token":"t"})"), "token");
  names(refusal(R"({"server":"https://h","certificate-authority-data":"!"})"), "base64");
  for (const char* server : {"", "h:6443", "https://", "https://h:0", "https://h:x", "https://u@h", "https://h?q",
                             "https://[::1", "https://[::1]x"}) {
    refusal(R"({"server":")" + std::string(server) + "\"}");
  }
}

TEST(ClusterConfig, NamesWhatIsMissing) {
  EXPECT_FALSE(parse_kubeconfig(json::Value(1), ""));
  EXPECT_FALSE(parse_kubeconfig(json::Value(json::Object()), ""));
  const auto missing = parse_kubeconfig(document(good, "{}"), "", "nope");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("nope"), std::string::npos);
  EXPECT_TRUE(parse_kubeconfig(document(R"({"server":"http://127.0.0.1:8001"})", "{}"), ""));
}

TEST(ClusterConfig, InAPodReadsTheServiceAccount) {
  const auto config = in_cluster_config("10.0.0.1", "443");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->authority.file, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt");
  EXPECT_EQ(config->token_file, "/var/run/secrets/kubernetes.io/serviceaccount/token");
  EXPECT_FALSE(in_cluster_config("", "443"));
  EXPECT_FALSE(in_cluster_config("h", "x"));
}

TEST(Base64, ReadsAndRefuses) {
  EXPECT_EQ(decode_base64("SGVsbG8h"), "Hello!");
  EXPECT_EQ(decode_base64("SGVs\nbG8="), "Hello");
  EXPECT_EQ(decode_base64(""), "");
  for (const char* text : {"A", "AA", "AA=", "AAA", "A===", "AA==AA==", "A-==", "=AAA"}) {
    EXPECT_FALSE(decode_base64(text)) << text;
  }
}

}  // namespace
}  // namespace penstock::kube
