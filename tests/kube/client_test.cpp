// common/kube against a real API server: what the scripted one only pretends. Needs PENSTOCK_TEST_KUBECONFIG, works in
// a namespace of its own and deletes it.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>

#include "common/async/task_group.hpp"
#include "common/base/id.hpp"
#include "common/kube/client/find_config.hpp"
#include "common/kube/client/leader_elector.hpp"
#include "common/kube/client/recorder.hpp"
#include "common/kube/client/watch_loop.hpp"
#include "common/kube/model/known_types.hpp"

namespace penstock::kube {
namespace {

using namespace std::chrono_literals;
using Answer = ApiResult<json::Value>;

const std::string label = "penstock.dev/test";

struct Thing {
  ObjectMeta meta;
  std::string value;
};
Result<Thing> project(const json::Object& object) {
  PENSTOCK_TRY(ObjectMeta meta, parse_meta(object));
  return Thing{std::move(meta), std::string(text_at(object, {"data", "value"}).value_or(""))};
}

class KubeCluster : public testing::Test {
 protected:
  void SetUp() override {
    const char* kubeconfig = std::getenv("PENSTOCK_TEST_KUBECONFIG");
    if (kubeconfig == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_KUBECONFIG names no cluster";
    FindOptions find;
    find.kubeconfig = kubeconfig;
    const auto config = find_cluster_config(find, [](const std::string&) { return std::nullopt; });
    ASSERT_TRUE(config) << config.error().message;
    client = std::make_unique<Client>(io.get_executor(), *config, ClientOptions(), make_probe(registry), log::Logger());
    std::uint32_t number = 0;
    base::random_bytes(&number, sizeof number);
    space = "penstock-test-" + std::to_string(number);
    Create create{namespaces, "", make_object(namespaces, {"", space})};
    const Answer made = execute(create);
    ASSERT_TRUE(made) << to_string(made.error());
  }
  void TearDown() override {
    if (client == nullptr) return;
    tasks.cancel();
    EXPECT_TRUE(run_until([&] { return tasks.count() == 0; }));
    Delete remove;
    remove.type = namespaces;
    remove.key = {"", space};
    EXPECT_TRUE(execute(remove));
  }

  bool run_until(const std::function<bool()>& condition, Duration limit = 20s) {
    const TimePoint end = SteadyClock().now() + limit;
    while (!condition()) {
      if (SteadyClock().now() >= end) return false;
      io.restart();
      io.run_one_for(20ms);
    }
    return true;
  }
  static asio::awaitable<void> keep(asio::awaitable<Answer> call, std::optional<Answer>& result) {
    result = co_await std::move(call);
  }
  Answer finish(asio::awaitable<Answer> call) {
    std::optional<Answer> result;
    async::TaskGroup group(io.get_executor());
    group.spawn("call", keep(std::move(call), result));
    EXPECT_TRUE(run_until([&] { return group.count() == 0; }));
    return result.value_or(Answer(ApiStatus()));
  }
  Answer execute(const Write& write, DryRun dry_run = DryRun::no) { return finish(client->execute(write, dry_run)); }
  Answer get(const std::string& name) {
    const Key key{space, name};
    return finish(client->get(config_maps, key));
  }

  Apply apply(const std::string& name, const std::string& value, const std::string& manager = "penstock") const {
    json::Object body = make_object(config_maps, {space, name}, {{label, "yes"}});
    body["data"] = json::Object{{"value", value}};
    return {config_maps, {space, name}, std::move(body), manager, Force::no};
  }
  static ObjectMeta meta_of(const Answer& answer) {
    EXPECT_TRUE(answer) << to_string(answer.error());
    const auto meta = answer ? parse_meta(answer->as_object()) : Result<ObjectMeta>(ObjectMeta());
    return meta ? *meta : ObjectMeta();
  }

  boost::asio::io_context io;
  metrics::Registry registry;
  std::unique_ptr<Client> client;
  std::string space;
  async::TaskGroup tasks{io.get_executor()};
};

TEST_F(KubeCluster, ApplyIsIdempotentAndGuardsOtherManagersFields) {
  const ObjectMeta first = meta_of(execute(apply("a", "1")));
  EXPECT_EQ(meta_of(execute(apply("a", "1"))).resource_version, first.resource_version) << "nothing was written";
  EXPECT_EQ(execute(apply("a", "2", "other")).error().failure(), Failure::conflict);
  Apply forced = apply("a", "2", "other");
  forced.force = Force::yes;
  EXPECT_GT(meta_of(execute(forced)).resource_version, first.resource_version);
}

TEST_F(KubeCluster, AnApplyWithAUidMakesNothingAnew) {
  Apply again = apply("gone", "1");
  again.body["metadata"].as_object()["uid"] = "00000000-0000-0000-0000-000000000001";
  EXPECT_EQ(execute(again).error().failure(), Failure::conflict);
  EXPECT_EQ(get("gone").error().failure(), Failure::not_found);
}

TEST_F(KubeCluster, CreatesOnceAndDryRunsLeaveNothing) {
  Create create{config_maps, space, make_object(config_maps, {space, "c"})};
  EXPECT_TRUE(execute(create, DryRun::yes));
  EXPECT_EQ(get("c").error().failure(), Failure::not_found);
  EXPECT_TRUE(execute(create));
  EXPECT_EQ(execute(create).error().failure(), Failure::already_exists);
  Create bad{config_maps, space, make_object(config_maps, {space, "No_Name"})};
  const Answer refused = execute(bad);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().failure(), Failure::invalid);
  ASSERT_FALSE(refused.error().causes.empty());
  EXPECT_EQ(refused.error().causes[0].field, "metadata.name");
}

TEST_F(KubeCluster, PatchesMeetTheObjectThatWasSeen) {
  const ObjectMeta seen = meta_of(execute(apply("p", "1")));
  Patch patch;
  patch.type = config_maps;
  patch.key = {space, "p"};
  patch.body = json::Object{{"data", json::Object{{"value", "2"}}}};
  patch.preconditions = {seen.uid, seen.resource_version};
  const ObjectMeta written = meta_of(execute(patch));
  EXPECT_GT(written.resource_version, seen.resource_version);
  EXPECT_EQ(execute(patch).error().failure(), Failure::conflict) << "the version has moved on";
  patch.preconditions = {"00000000-0000-0000-0000-000000000001", 0};
  EXPECT_EQ(execute(patch).error().failure(), Failure::invalid) << "another object: a uid can't be changed";
  patch.kind = PatchKind::json;
  patch.body = json::Array{json::Object{{"op", "replace"}, {"path", "/data/value"}, {"value", "3"}}};
  EXPECT_EQ(execute(patch).error().failure(), Failure::invalid) << "a JSON patch says so differently";
  patch.preconditions = {seen.uid, written.resource_version};
  EXPECT_TRUE(execute(patch));
}

TEST_F(KubeCluster, DeletesOnlyTheObjectThatWasMeant) {
  const ObjectMeta seen = meta_of(execute(apply("d", "1")));
  Delete remove{config_maps, {space, "d"}, {"00000000-0000-0000-0000-000000000001", 0}, Propagation::background, {}};
  EXPECT_EQ(execute(remove).error().failure(), Failure::conflict);
  remove.preconditions = {seen.uid, seen.resource_version};
  EXPECT_TRUE(execute(remove, DryRun::yes));
  EXPECT_TRUE(execute(remove));
  EXPECT_EQ(execute(remove).error().failure(), Failure::not_found);
}

TEST_F(KubeCluster, AnInformerFollows) {
  ASSERT_TRUE(execute(apply("before", "1")));
  ASSERT_TRUE(execute(Create{config_maps, space, make_object(config_maps, {space, "unlabelled"})}));
  for (const FirstList first : {FirstList::streamed, FirstList::paged}) {
    Store<Thing> store;
    std::vector<std::string> seen;
    store.observe([&](const Change<Thing>& change) {
      seen.push_back((change.before == nullptr  ? "+"
                      : change.after == nullptr ? "-"
                                                : "~") +
                     (change.after == nullptr ? change.before : change.after)->meta.name);
    });
    WatchOptions options;
    options.label_selector = label + "=yes";
    options.first_list = first;
    Informer<Thing> informer(*client, config_maps, space, options, store, project, 1);
    tasks.spawn("informer", informer.run());
    ASSERT_TRUE(run_until([&] { return store.synced(); }));
    EXPECT_EQ(store.size(), 1u) << "the selector holds";
    const ObjectMeta made = meta_of(execute(apply("x", "1")));
    ASSERT_TRUE(run_until([&] { return store.reached(made.resource_version); }));
    ASSERT_TRUE(execute(apply("x", "2")));
    ASSERT_TRUE(
        run_until([&] { return store.find({space, "x"}) != nullptr && store.find({space, "x"})->value == "2"; }));
    ASSERT_TRUE(execute(Delete{config_maps, {space, "x"}, {made.uid, 0}, Propagation::background, {}}));
    ASSERT_TRUE(run_until([&] { return store.find({space, "x"}) == nullptr; }));
    EXPECT_EQ(seen, (std::vector<std::string>{"+before", "+x", "~x", "-x"}));
    EXPECT_FALSE(informer.reflector().machine().last_failure());
    tasks.cancel();
    ASSERT_TRUE(run_until([&] { return tasks.count() == 0; }));
  }
  EXPECT_NE(registry.expose().find(R"(penstock_kube_calls_total{code="2xx",verb="list"} 2)"), std::string::npos)
      << "a streamed list and a plain one, each the first time";
}

TEST_F(KubeCluster, SaysWhatItServes) {
  const Answer version = finish(client->get_path("/version"));
  ASSERT_TRUE(version);
  EXPECT_TRUE(text_at(version->as_object(), {"gitVersion"}));
  EXPECT_TRUE(finish(client->get_path("/apis/apps/v1")));
  EXPECT_EQ(finish(client->get_path("/apis/nothing.example/v1")).error().failure(), Failure::not_found);
}

TEST_F(KubeCluster, TheLeaseIsHandedOver) {
  std::string journal;
  const auto candidate = [&](const std::string& name) {
    LeaseOptions options;
    options.key = {space, "operator"};
    options.identity = name;
    LeaderElector::Callbacks callbacks{[&journal, name] { journal += "+" + name; },
                                       [&journal, name] { journal += "-" + name; }};
    return std::make_unique<LeaderElector>(io.get_executor(), *client, options, 1, callbacks, log::Logger());
  };
  const auto first = candidate("a"), second = candidate("b");
  tasks.spawn("a", first->run());
  ASSERT_TRUE(run_until([&] { return first->leading(); }));
  tasks.spawn("b", second->run());
  ASSERT_TRUE(run_until([&] { return second->holder() == "a"; }));
  const TimePoint before = SteadyClock().now();
  first->release();
  ASSERT_TRUE(run_until([&] { return second->leading(); }));
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock().now() - before);
  RecordProperty("hand_over_ms", static_cast<int>(took.count()));
  EXPECT_LT(took, 2s);
  EXPECT_EQ(journal, "+a-a+b");
}

TEST_F(KubeCluster, EventsAreSeries) {
  const ObjectMeta about = meta_of(execute(apply("e", "1")));
  EventOptions options;
  options.instance = "test";
  Recorder recorder(io.get_executor(), *client, options, 1, log::Logger());
  tasks.spawn("recorder", recorder.run());
  EmitEvent event;
  event.regarding = reference_to(config_maps, about);
  event.reason = "Tried";
  event.action = "Try";
  event.note = "a note";
  recorder.emit(event);
  recorder.emit(event);
  std::string path = events.path(space);
  std::int64_t count = 0;
  EXPECT_TRUE(run_until([&] {
    const Answer list = finish(client->get_path(path));
    const json::Array* items = list ? array_at(list->as_object(), {"items"}) : nullptr;
    if (items == nullptr || items->empty()) return false;
    count = integer_at(items->front().as_object(), {"series", "count"}).value_or(0);
    return count == 2;
  }));
}

}  // namespace
}  // namespace penstock::kube
