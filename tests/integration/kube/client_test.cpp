// Calls: answers, refusals, repeats, deadlines, the pool.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <set>

#include "common/async/task_group.hpp"
#include "common/kube/client/recorder.hpp"
#include "common/kube/model/known_types.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

const std::string pod_path = "/api/v1/namespaces/n/pods/p";

class KubeClient : public testing::Test {
 protected:
  KubeClient() : server(io, keys) { remake(quick_client()); }

  void remake(ClientOptions options) {
    client = std::make_unique<Client>(io.get_executor(), server.config(keys), std::move(options), make_probe(registry),
                                      log::Logger());
  }
  ApiResult<json::Value> execute(const Write& write, DryRun dry_run = DryRun::no) {
    ApiResult<json::Value> result = ApiStatus();
    run(io, keep(client->execute(write, dry_run), result));
    return result;
  }
  ApiResult<json::Value> get() {
    ApiResult<json::Value> result = ApiStatus();
    const Key key{"n", "p"};
    run(io, keep(client->get(pods, key), result));
    return result;
  }
  static asio::awaitable<void> keep(asio::awaitable<ApiResult<json::Value>> call, ApiResult<json::Value>& result) {
    result = co_await std::move(call);
  }
  bool counted(std::string_view line) const { return registry.expose().find(line) != std::string::npos; }

  boost::asio::io_context io;
  TestKeys keys;
  ApiServer server;
  metrics::Registry registry;
  std::unique_ptr<Client> client;
};

TEST_F(KubeClient, GetsAnObjectAndKeepsTheConnection) {
  server.enqueue(pod_path, Answer(200, R"({"metadata":{"name":"p"}})"));
  server.enqueue(pod_path, Answer(200, R"({"metadata":{"name":"p"}})"));
  const auto object = get();
  ASSERT_TRUE(object) << to_string(object.error());
  EXPECT_EQ(text_at(object->as_object(), {"metadata", "name"}), "p");
  ASSERT_TRUE(get());
  EXPECT_EQ(server.seen[0].peer_address, server.seen[1].peer_address);
  EXPECT_EQ(server.seen[0].headers.find("user-agent"), "penstock");
  EXPECT_TRUE(counted(R"(penstock_kube_calls_total{code="2xx",verb="get"} 2)"));
}

TEST_F(KubeClient, AppliesWithADryRun) {
  server.enqueue(pod_path, Answer(200, "{}"));
  const Write write = Apply{pods, {"n", "p"}, make_object(pods, {"n", "p"}), "penstock", Force::yes};
  ASSERT_TRUE(execute(write, DryRun::yes));
  EXPECT_EQ(server.seen[0].method, "PATCH");
  EXPECT_EQ(server.seen[0].query, "fieldManager=penstock&force=true&dryRun=All");
  EXPECT_EQ(server.seen[0].headers.find("content-type"), "application/apply-patch+yaml");
  EXPECT_NE(server.seen[0].body.find("\"kind\":\"Pod\""), std::string::npos);
}

TEST_F(KubeClient, WantsOnlyTheMetadataOfWhatItWrote) {
  server.enqueue(pod_path, Answer(200, R"({"metadata":{"managedFields":[{"f:spec":{"}":1}}],"resourceVersion":"8"}})"));
  const auto answer = execute(Apply{pods, {"n", "p"}, make_object(pods, {"n", "p"}), "penstock", Force::yes});
  ASSERT_TRUE(answer);
  EXPECT_EQ(server.seen[0].headers.find("accept"),
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
  const json::Object& metadata = answer->at("metadata").as_object();
  EXPECT_EQ(metadata.at("resourceVersion"), "8");
  EXPECT_TRUE(metadata.at("managedFields").as_array().empty());
  server.enqueue(pod_path, Answer(200, R"({"metadata":{"managedFields":[1]}})"));
  const auto whole = get();
  ASSERT_TRUE(whole);
  EXPECT_EQ(server.seen[1].headers.find("accept"), "application/json") << "what is replaced must be whole";
  EXPECT_EQ(whole->at("metadata").at("managedFields").as_array().size(), 1u);
}

TEST_F(KubeClient, GivesRefusalsBackAsTheyAre) {
  server.enqueue(pod_path, Answer(409, R"({"kind":"Status","reason":"Conflict","message":"changed"})"));
  server.enqueue(pod_path, Answer(502, "<html>a proxy</html>"));
  const Write write = Delete{pods, {"n", "p"}, {"u", 0}, Propagation::background, {}};
  EXPECT_EQ(execute(write).error().failure(), Failure::conflict);
  EXPECT_EQ(execute(write).error().failure(), Failure::server);
  EXPECT_EQ(server.seen.size(), 2u) << "neither is worth repeating";
  EXPECT_TRUE(counted(R"(penstock_kube_calls_total{code="409",verb="delete"} 1)"));
}

TEST_F(KubeClient, RepeatsWhatTheServerAsksToRepeat) {
  Answer busy(429, "{}"), down(503, "{}");
  busy.retry_after = down.retry_after = "0";
  server.enqueue(pod_path, busy);
  server.enqueue(pod_path, down);
  server.enqueue(pod_path, Answer(200, "{}"));
  ASSERT_TRUE(get());
  EXPECT_EQ(server.seen.size(), 3u);
}

TEST_F(KubeClient, GivesUpAtItsDeadline) {
  Answer busy(429, "{}");
  busy.retry_after = "60";
  server.enqueue(pod_path, busy);
  EXPECT_EQ(get().error().failure(), Failure::too_many_requests) << "no use in waiting";
  ClientOptions options = quick_client();
  options.call_timeout = 200ms;
  remake(options);
  server.enqueue(pod_path, stream({}, Answer::End::hold));
  const auto late = get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().failure(), Failure::no_answer);
}

TEST_F(KubeClient, ACutAnswerIsNoAnswer) {
  server.enqueue(pod_path, stream({R"({"metadata":)"}, Answer::End::cut));
  EXPECT_EQ(get().error().failure(), Failure::no_answer);
  server.enqueue(pod_path, Answer(200, R"({"metadata":)"));
  EXPECT_EQ(get().error().failure(), Failure::no_answer);
  server.enqueue(pod_path, Answer(200, "{}"));
  EXPECT_TRUE(get()) << "and the next call is as good as ever";
}

TEST_F(KubeClient, BoundsTheAnswer) {
  ClientOptions options = quick_client();
  options.response_bytes_max = 1000;
  remake(options);
  server.enqueue(pod_path, Answer(200, "\"" + std::string(5000, 'x') + "\""));
  EXPECT_FALSE(get());
}

TEST_F(KubeClient, CallsBeyondThePoolWait) {
  ClientOptions options = quick_client();
  options.connections_max = 2;
  remake(options);
  server.responder = [](const http::Request&) {
    Answer answer(200, "{}");
    answer.pause = 30ms;
    return answer;
  };
  const Key key{"n", "p"};
  std::vector<ApiResult<json::Value>> results(6, ApiStatus());
  async::TaskGroup tasks(io.get_executor());
  for (auto& result : results) tasks.spawn("call", keep(client->get(pods, key), result));
  ASSERT_TRUE(run_until(io, [&] { return tasks.count() == 0; }));
  std::set<std::string> connections;
  for (const http::Request& request : server.seen) connections.insert(request.peer_address);
  EXPECT_EQ(connections.size(), 2u);
  for (const auto& result : results) EXPECT_TRUE(result);
}

TEST_F(KubeClient, EventsGoThroughTheRecorder) {
  const std::string path = "/apis/events.k8s.io/v1/namespaces/n/events";
  server.responder = [](const http::Request&) { return Answer(201, "{}"); };
  Recorder recorder(io.get_executor(), *client, {}, 1, log::Logger());
  async::TaskGroup tasks(io.get_executor());
  tasks.spawn("recorder", recorder.run());
  EmitEvent event;
  event.regarding = {"v1", "Pod", "n", "p", "u"};
  event.reason = "Restarted";
  const Write write = event;
  ApiResult<json::Value> result = ApiStatus();
  for (int i = 0; i < 5; ++i) run(io, keep(kube::execute(*client, recorder, write), result));
  EXPECT_TRUE(result);
  ASSERT_TRUE(run_until(io, [&] { return server.seen.size() >= 2; }));
  EXPECT_EQ(server.seen[0].method, "POST");
  EXPECT_EQ(server.seen[0].path, path);
  EXPECT_EQ(server.seen[1].method, "PATCH");
  EXPECT_TRUE(server.seen[1].path.starts_with(path + "/p."));
  EXPECT_NE(server.seen[1].body.find("\"count\":2"), std::string::npos);
  EXPECT_EQ(execute(write).error().failure(), Failure::no_answer) << "not by the bare client";
  run(io, [](async::TaskGroup& group) -> asio::awaitable<void> { co_await group.drain(Duration(0)); }(tasks));
}

}  // namespace
}  // namespace penstock::kube
