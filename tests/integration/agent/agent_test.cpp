// The agent against a scripted API server and a web server: from a wish to a copy and a status, and over a restart.
#include "operator/agent/agent_app.hpp"

#include <gtest/gtest.h>

#include "common/json/json.hpp"
#include "common/kube/model/object_meta.hpp"
#include "tests/integration/agent/files_server.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::ctl {
namespace {

const std::string nodes_path = "/apis/penstock.dev/v1alpha1/nodemodelcaches";
const std::string caches_path = "/apis/penstock.dev/v1alpha1/modelcaches";
const std::string status_path = nodes_path + "/n1/status";

std::string event(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}
std::string synced(int version) {
  return event("BOOKMARK", R"({"metadata":{"resourceVersion":")" + std::to_string(version) +
                               R"(","annotations":{"k8s.io/initial-events-end":"true"}}})");
}
std::string wish(int version, const std::string& caches) {
  return R"({"metadata":{"name":"n1","uid":"u","generation":)" + std::to_string(version) + R"(,"resourceVersion":")" +
         std::to_string(version) + R"("},"spec":{"nodeName":"n1","caches":[)" + caches + "]}}";
}

class AgentTest : public testing::Test {
 protected:
  AgentTest() : server(io, keys), web(io) {
    web.files["/m.gguf"] = std::string(200'000, 'w');
    server.responder = [this](const http::Request& request) -> std::optional<kube::Answer> {
      if (request.path != status_path) return std::nullopt;
      statuses.push_back(json::parse(request.body).value().as_object());
      return kube::Answer(200, request.body);
    };
    config.node = "n1";
    config.folder = folder.path();
    config.reserve = "0";
    config.admin_port = 0;
    config.cluster.kubeconfig = keys.path("kubeconfig");
    keys.write("kubeconfig",
               "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, "
               "user: u}}]\nusers: [{name: u, user: {token: t}}]\nclusters: [{name: k, cluster: {server: "
               "\"https://127.0.0.1:" +
                   std::to_string(server.config(keys).port) + "\", certificate-authority: \"" +
                   keys.path("server.pem") + "\"}}]\n");
  }

  void script(const std::string& caches) {
    const std::string cache =
        R"({"metadata":{"namespace":"ns","name":"m","uid":"c","resourceVersion":"2"},"spec":{"uri":")" +
        web.url("/m.gguf") + R"(","size":"1Mi","storage":{"hostPath":{}}}})";
    server.enqueue(nodes_path, kube::stream({event("ADDED", wish(1, caches)), synced(5)}));
    server.enqueue(caches_path, kube::stream({event("ADDED", cache), synced(5)}));
  }
  std::string state() const {
    if (statuses.empty()) return "";
    const auto* entries = kube::array_at(statuses.back(), {"status", "entries"});
    if (entries == nullptr || entries->empty()) return "";
    return std::string(kube::text_at(entries->at(0).as_object(), {"state"}).value_or(""));
  }
  void stop(AgentApp& app) { kube::run(io, app.drain()); }

  boost::asio::io_context io;
  kube::TestKeys keys;
  kube::ApiServer server;
  FilesServer web;
  TemporaryFolder folder;
  AgentConfig config;
  std::vector<json::Object> statuses;
};

TEST_F(AgentTest, AWishBecomesACopyAndAStatusOfThisNodeAlone) {
  script(R"("ns/m")");
  AgentApp app(io, config, log::Logger());
  ASSERT_TRUE(app.start());
  ASSERT_TRUE(kube::run_until(io, [&] { return state() == "Ready"; }));
  EXPECT_EQ(folder.read("ns.m/m.gguf"), web.files["/m.gguf"]);
  EXPECT_EQ(kube::text_at(statuses.back(), {"metadata", "uid"}), "u");
  EXPECT_LE(statuses.size(), 3u);
  for (const auto& request : server.seen) {
    EXPECT_TRUE(request.method == "GET" || request.path == status_path) << request.method << " " << request.path;
    if (request.path == nodes_path) {
      EXPECT_NE(request.query.find("metadata.name"), std::string::npos);
    }
  }
  stop(app);
}

TEST_F(AgentTest, ANewAgentFindsWhatTheLastOneFetched) {
  script(R"("ns/m")");
  {
    AgentApp app(io, config, log::Logger());
    ASSERT_TRUE(app.start());
    ASSERT_TRUE(kube::run_until(io, [&] { return state() == "Ready"; }));
    stop(app);
  }
  const auto asked = web.seen.size();
  statuses.clear();
  script(R"("ns/m")");
  AgentApp next(io, config, log::Logger());
  ASSERT_TRUE(next.start());
  ASSERT_TRUE(kube::run_until(io, [&] { return state() == "Ready"; }));
  EXPECT_EQ(web.seen.size(), asked);
  stop(next);
}

TEST_F(AgentTest, ASourceThatRefusesIsSaidInTheStatus) {
  web.files.clear();
  script(R"("ns/m")");
  AgentApp app(io, config, log::Logger());
  ASSERT_TRUE(app.start());
  ASSERT_TRUE(kube::run_until(io, [&] { return state() == "Failed"; }));
  const auto& entry = kube::array_at(statuses.back(), {"status", "entries"})->at(0).as_object();
  EXPECT_NE(kube::text_at(entry, {"message"})->find("404"), std::string_view::npos);
  EXPECT_FALSE(folder.has("ns.m"));
  stop(app);
}

}  // namespace
}  // namespace penstock::ctl
