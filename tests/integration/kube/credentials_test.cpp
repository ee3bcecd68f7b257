// Who we are and who the server is: tokens that rotate, authorities that change, client certificates.
#include <gtest/gtest.h>

#include "common/kube/client/client.hpp"
#include "common/kube/client/find_config.hpp"
#include "common/kube/model/known_types.hpp"
#include "tests/integration/http/test_certificate.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

const Key key{"n", "p"};

asio::awaitable<void> get_into(Client& client, ApiResult<json::Value>& result) {
  result = co_await client.get(pods, key);
}

ApiResult<json::Value> get(boost::asio::io_context& io, Client& client) {
  ApiResult<json::Value> result = ApiStatus();
  run(io, get_into(client, result));
  return result;
}

struct World {
  explicit World(const std::string& client_ca = "") : server(io, keys, client_ca.empty() ? "" : keys.path(client_ca)) {
    server.responder = [](const http::Request&) { return Answer(200, "{}"); };
    config = server.config(keys);
  }
  std::unique_ptr<Client> client(Duration reread_every = 60s) {
    ClientOptions options = quick_client();
    options.credentials.reread_every = reread_every;
    return std::make_unique<Client>(io.get_executor(), config, options, Probe(), log::Logger());
  }
  std::string last_token() const { return std::string(server.seen.back().headers.find("authorization").value_or("")); }

  boost::asio::io_context io;
  TestKeys keys;
  ApiServer server;
  ClusterConfig config;
};

TEST(KubeCredentials, TheTokenFileIsReadAgainAfterARefusal) {
  World world;
  world.keys.write("token", "first\n");
  world.config.token_file = world.keys.path("token");
  const auto client = world.client();
  ASSERT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer first");
  world.keys.write("token", "second\n");
  ASSERT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer first") << "not read more than once a minute";
  world.server.responder = [](const http::Request& request) {
    return request.headers.find("authorization") == "Bearer second" ? Answer(200, "{}") : Answer(401, "{}");
  };
  EXPECT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer second");
}

TEST(KubeCredentials, ARefusalThatStaysIsGivenBackAfterOneRepeat) {
  World world;
  world.config.token = "wrong";
  world.server.responder = [](const http::Request&) { return Answer(401, "{}"); };
  const auto client = world.client();
  EXPECT_EQ(get(world.io, *client).error().failure(), Failure::unauthorized);
  EXPECT_EQ(world.server.seen.size(), 2u);
}

TEST(KubeCredentials, AFailedReadKeepsTheOldToken) {
  World world;
  world.keys.write("token", "first");
  world.config.token_file = world.keys.path("token");
  const auto client = world.client(0s);
  ASSERT_TRUE(get(world.io, *client));
  std::filesystem::remove(world.keys.path("token"));
  EXPECT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer first");
  world.keys.write("token", "bad\r\nx-header: 1");
  EXPECT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer first");
  world.keys.write("token", "second");
  EXPECT_TRUE(get(world.io, *client));
  EXPECT_EQ(world.last_token(), "Bearer second");
}

TEST(KubeCredentials, NothingIsSentToAServerOfAnotherAuthority) {
  World world;
  world.config.authority.file = world.keys.path("client.pem");  // not who signed the server's
  const auto client = world.client();
  const auto result = get(world.io, *client);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().failure(), Failure::no_answer);
  EXPECT_TRUE(world.server.seen.empty());
}

TEST(KubeCredentials, TheCertificateMustNameTheServer) {
  World world;
  world.config.server_name = "localhost";
  EXPECT_TRUE(get(world.io, *world.client()));
  world.config.server_name = "kubernetes.default.svc";
  EXPECT_FALSE(get(world.io, *world.client()));
}

TEST(KubeCredentials, ANewAuthorityIsTakenUp) {
  World world;
  world.keys.write("ca.pem", world.keys.read("client.pem"));
  world.config.authority.file = world.keys.path("ca.pem");
  const auto client = world.client(0s);
  EXPECT_FALSE(get(world.io, *client));
  world.keys.write("ca.pem", world.keys.read("server.pem"));
  EXPECT_TRUE(get(world.io, *client));
}

TEST(KubeCredentials, AClientCertificateFromFilesOrText) {
  World world("client.pem");
  EXPECT_FALSE(get(world.io, *world.client())) << "the server asks for one";
  world.config.client_certificate.file = world.keys.path("client.pem");
  world.config.client_key.file = world.keys.path("client-key.pem");
  EXPECT_TRUE(get(world.io, *world.client()));
  world.config.client_certificate = {"", world.keys.read("client.pem")};
  world.config.client_key = {"", world.keys.read("client-key.pem")};
  EXPECT_TRUE(get(world.io, *world.client()));
  world.config.client_key = {"", world.keys.read("server-key.pem")};
  EXPECT_FALSE(get(world.io, *world.client())) << "a key of another certificate";
}

TEST(KubeCredentials, AKubeconfigFileLeadsToTheServer) {
  World world;
  const std::string text =
      "current-context: test\ncontexts: [{name: test, context: {cluster: k, user: u}}]\n"
      "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:" +
      std::to_string(world.config.port) +
      "', certificate-authority: server.pem}}]\n"
      "users: [{name: u, user: {token: secret}}]\n";
  world.keys.write("kubeconfig", text);
  FindOptions options;
  options.kubeconfig = world.keys.path("kubeconfig");
  const auto found = find_cluster_config(options, [](const std::string&) { return std::nullopt; });
  ASSERT_TRUE(found) << found.error().message;
  world.config = *found;
  EXPECT_TRUE(get(world.io, *world.client()));
  EXPECT_EQ(world.last_token(), "Bearer secret");
}

TEST(KubeCredentials, InAPodTheServiceAccountIsUsed) {
  World world;
  world.keys.write("ca.crt", world.keys.read("server.pem"));
  world.keys.write("token", "pod-token\n");
  world.keys.write("namespace", "team\n");
  FindOptions options;
  options.service_account_folder = world.keys.path("");
  const std::string port = std::to_string(world.config.port);
  const auto found = find_cluster_config(options, [&](const std::string& name) -> std::optional<std::string> {
    return name == "KUBERNETES_SERVICE_HOST" ? "127.0.0.1" : port;
  });
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->namespace_, "team");
  world.config = *found;
  EXPECT_TRUE(get(world.io, *world.client()));
  EXPECT_EQ(world.last_token(), "Bearer pod-token");
  EXPECT_FALSE(find_cluster_config({}, [](const std::string&) { return std::nullopt; }));
}

}  // namespace
}  // namespace penstock::kube
