// The cache over the network: every way in which a list or a watch goes wrong.
#include <gtest/gtest.h>

#include "common/async/task_group.hpp"
#include "common/kube/client/watch_loop.hpp"
#include "common/kube/model/known_types.hpp"
#include "tests/integration/kube/api_server.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;

struct Pod {
  ObjectMeta meta;
  std::string node;
};
Result<Pod> project(const json::Object& object) {
  PENSTOCK_TRY(ObjectMeta meta, parse_meta(object));
  return Pod{std::move(meta), std::string(text_at(object, {"spec", "nodeName"}).value_or(""))};
}

std::string pod(const std::string& name, int version, const std::string& node = "") {
  return R"({"metadata":{"name":")" + name + R"(","namespace":"n","uid":"u-)" + name + R"(","resourceVersion":")" +
         std::to_string(version) + R"("},"spec":{"nodeName":")" + node + "\"}}";
}
std::string event(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}
std::string synced(int version) {
  return event("BOOKMARK", R"({"metadata":{"resourceVersion":")" + std::to_string(version) +
                               R"(","annotations":{"k8s.io/initial-events-end":"true"}}})");
}
std::string error_event(int code) {
  return event("ERROR", R"({"kind":"Status","code":)" + std::to_string(code) + "}");
}
std::string list(const std::string& items, int version) {
  return R"({"kind":"PodList","items":[)" + items + R"(],"metadata":{"resourceVersion":")" + std::to_string(version) +
         "\"}}";
}

class KubeInformer : public testing::Test {
 protected:
  KubeInformer() : server(io, keys), tasks(io.get_executor()) {
    options.backoff.first = 5ms;
    options.backoff.max = 20ms;
    options.backoff.floor = 1ms;
    options.first_event_wait = 2s;
    client = std::make_unique<Client>(io.get_executor(), server.config(keys), quick_client(), make_probe(registry),
                                      log::Logger());
  }
  ~KubeInformer() override {
    run(io, [](async::TaskGroup& group) -> asio::awaitable<void> { co_await group.drain(Duration(0)); }(tasks));
  }

  void script(Answer answer) { server.enqueue("/api/v1/namespaces/n/pods", std::move(answer)); }
  void start() {
    informer = std::make_unique<Informer<Pod>>(*client, pods, "n", options, store, project, 1,
                                               make_cache_gauge(registry, pods));
    tasks.spawn("informer", informer->run());
  }
  bool until(const std::function<bool()>& condition) { return run_until(io, condition); }
  bool has(const std::string& name) const { return store.find({"n", name}) != nullptr; }
  std::string parameter(std::size_t request, std::string_view name) const {
    return http::query_parameter(server.seen.at(request).query, name).value_or("(none)");
  }
  bool counted(std::string_view line) const { return registry.expose().find(line) != std::string::npos; }

  boost::asio::io_context io;
  TestKeys keys;
  ApiServer server;
  metrics::Registry registry;
  std::unique_ptr<Client> client;
  WatchOptions options;
  Store<Pod> store{std::vector<std::string>{}};
  std::unique_ptr<Informer<Pod>> informer;
  async::TaskGroup tasks;
};

TEST_F(KubeInformer, StreamsTheFirstListAndGoesOnWatching) {
  script(stream({event("ADDED", pod("a", 1)) + event("ADDED", pod("b", 2)), synced(5),
                 event("MODIFIED", pod("a", 6, "node-1")) + event("DELETED", pod("b", 7))}));
  start();
  ASSERT_TRUE(until([&] { return store.version() == 7; }));
  EXPECT_EQ(store.find({"n", "a"})->node, "node-1");
  EXPECT_FALSE(has("b"));
  EXPECT_EQ(server.seen.size(), 1u);
  EXPECT_EQ(parameter(0, "sendInitialEvents"), "true");
  EXPECT_TRUE(counted(R"(penstock_kube_cache_objects{resource="pods"} 1)"));
}

TEST_F(KubeInformer, ChunksMayCutACharacter) {
  const std::string text = event("ADDED", pod("a", 1, "knoten-ü-€")) + synced(2);
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  script(stream(bytes));
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_EQ(store.find({"n", "a"})->node, "knoten-ü-€");
}

TEST_F(KubeInformer, ASlowStreamIsNotASilentOne) {
  options.first_event_wait = 150ms;
  Answer slow = stream({event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), event("ADDED", pod("c", 3)),
                        event("ADDED", pod("d", 4)), synced(4)});
  slow.pause = 60ms;
  script(slow);
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_EQ(store.size(), 4u);
  EXPECT_EQ(server.seen.size(), 1u);
}

TEST_F(KubeInformer, ListsPlainlyWhereStreamsAreRefused) {
  script(Answer(400, R"({"kind":"Status","message":"sendInitialEvents is forbidden"})"));
  script(Answer(200, list(pod("a", 1) + "," + pod("b", 2), 9)));
  script(stream({event("ADDED", pod("c", 10))}));
  start();
  ASSERT_TRUE(until([&] { return store.size() == 3; }));
  EXPECT_EQ(parameter(1, "resourceVersion"), "0");
  EXPECT_EQ(parameter(1, "watch"), "(none)");
  EXPECT_EQ(parameter(2, "resourceVersion"), "9");
}

TEST_F(KubeInformer, ListsPlainlyWhenNoBookmarkComes) {
  options.first_event_wait = 50ms;
  script(stream({event("ADDED", pod("a", 1))}));
  script(Answer(200, list(pod("a", 1), 9)));
  script(stream({}));
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_TRUE(has("a"));
  EXPECT_TRUE(counted(R"(penstock_kube_watch_restarts_total{reason="no_bookmark"} 1)"));
}

TEST_F(KubeInformer, GoneAsAnEventMakesANewListAndFindsMissedDeletions) {
  std::vector<std::string> gone;
  store.observe([&](const Change<Pod>& change) {
    if (change.after == nullptr) gone.push_back(change.before->meta.name);
  });
  script(stream({event("ADDED", pod("a", 1)) + event("ADDED", pod("b", 2)) + synced(5), error_event(410)}));
  script(stream({event("ADDED", pod("b", 2)) + synced(20)}));
  start();
  ASSERT_TRUE(until([&] { return store.version() == 20; }));
  EXPECT_EQ(gone, std::vector<std::string>{"a"});
  EXPECT_EQ(parameter(1, "resourceVersion"), "5") << "not older than what we know";
  EXPECT_TRUE(counted(R"(penstock_kube_watch_restarts_total{reason="gone"} 1)"));
}

TEST_F(KubeInformer, GoneAsAStatusOfTheWatchThenOfTheListAsksTheStorage) {
  script(stream({synced(5)}, Answer::End::cut));
  script(Answer(410, R"({"kind":"Status","code":410,"reason":"Expired"})"));
  script(Answer(410, R"({"kind":"Status","code":410,"reason":"Expired"})"));
  script(stream({event("ADDED", pod("a", 1)) + synced(30)}));
  start();
  ASSERT_TRUE(until([&] { return store.version() == 30; }));
  EXPECT_EQ(parameter(1, "resourceVersion"), "5");
  EXPECT_EQ(parameter(1, "sendInitialEvents"), "(none)");
  EXPECT_EQ(parameter(2, "resourceVersion"), "5");
  EXPECT_EQ(parameter(3, "resourceVersion"), "");
}

TEST_F(KubeInformer, AVersionFromTheFutureStartsOver) {
  script(stream({event("ADDED", pod("a", 1)) + synced(500)}, Answer::End::cut));
  script(Answer(504, R"({"kind":"Status","code":504,"message":"Too large resource version: 500, current: 40"})"));
  script(stream({event("ADDED", pod("b", 2)) + synced(40)}));
  start();
  ASSERT_TRUE(until([&] { return has("b"); }));
  EXPECT_FALSE(has("a"));
  EXPECT_EQ(parameter(2, "resourceVersion"), "");
  EXPECT_EQ(store.version(), 40u);
}

TEST_F(KubeInformer, OverloadIsWaitedOutAtTheSamePlace) {
  Answer busy(429, "{}");
  busy.retry_after = "1";
  script(stream({event("ADDED", pod("a", 1)) + synced(5), error_event(429)}));
  script(busy);
  script(stream({event("ADDED", pod("b", 6))}));
  const TimePoint before = SteadyClock().now();
  start();
  ASSERT_TRUE(until([&] { return has("b"); }));
  EXPECT_GE(SteadyClock().now() - before, Duration(1s));
  EXPECT_EQ(parameter(1, "resourceVersion"), "5");
  EXPECT_EQ(parameter(2, "resourceVersion"), "5");
}

TEST_F(KubeInformer, AServerThatClosesWithinAnObjectIsResumedFrom) {
  script(stream({event("ADDED", pod("a", 1)) + synced(5), event("ADDED", pod("b", 6)) + R"({"type":"ADDED","obj)"},
                Answer::End::close));
  script(stream({event("ADDED", pod("c", 7))}));
  start();
  ASSERT_TRUE(until([&] { return has("c"); }));
  EXPECT_TRUE(has("b"));
  EXPECT_EQ(parameter(1, "resourceVersion"), "6");
  EXPECT_TRUE(counted(R"(penstock_kube_watch_restarts_total{reason="broken"} 1)"));
}

TEST_F(KubeInformer, AListCutInTheMiddleChangesNothing) {
  options.first_list = FirstList::paged;
  const std::string whole = list(pod("a", 1) + "," + pod("b", 2), 9);
  script(stream({whole.substr(0, whole.size() / 2)}, Answer::End::cut));
  script(stream({whole.substr(0, whole.size() / 2)}, Answer::End::close));
  script(Answer(200, whole));
  script(stream({}));
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(server.seen_at("/api/v1/namespaces/n/pods").size(), 3u);
}

TEST_F(KubeInformer, AHalfOpenWatchIsLeftAtItsDeadline) {
  options.watch_min = options.watch_max = Duration(0);
  options.watch_margin = 300ms;
  script(stream({event("ADDED", pod("a", 1)) + synced(5)}));
  script(stream({event("ADDED", pod("b", 6))}));
  start();
  ASSERT_TRUE(until([&] { return has("b"); }));
  EXPECT_TRUE(counted(R"(penstock_kube_watch_restarts_total{reason="overdue"} 1)"));
}

TEST_F(KubeInformer, OneBadObjectIsCountedAndTheRestGoesOn) {
  script(stream({event("ADDED", R"({"metadata":{"namespace":"n"}})") + event("ADDED", pod("a", 1)) + synced(5)}));
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_TRUE(has("a"));
  EXPECT_TRUE(counted("penstock_kube_bad_objects_total 1"));
}

TEST_F(KubeInformer, AWatchIsRepeatedOnceWithFreshCredentials) {
  keys.write("token", "first");
  ClusterConfig config = server.config(keys);
  config.token_file = keys.path("token");
  client = std::make_unique<Client>(io.get_executor(), config, quick_client(), Probe(), log::Logger());
  script(Answer(401, "{}"));
  script(stream({synced(5)}));
  start();
  ASSERT_TRUE(until([&] { return store.synced(); }));
  EXPECT_EQ(server.seen.size(), 2u);
}

}  // namespace
}  // namespace penstock::kube
