// Paths, labels, times, metadata and conditions.
#include <gtest/gtest.h>

#include "common/kube/model/conditions.hpp"
#include "common/kube/model/known_types.hpp"
#include "common/kube/model/object_meta.hpp"

namespace penstock::kube {
namespace {

json::Object parse_object(std::string_view text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? value->as_object() : json::Object();
}

TEST(ResourceType, PathsFollowGroupScopeAndNamespace) {
  EXPECT_EQ(pods.path("default"), "/api/v1/namespaces/default/pods");
  EXPECT_EQ(pods.path(""), "/api/v1/pods");
  EXPECT_EQ(nodes.path("ignored"), "/api/v1/nodes");
  EXPECT_EQ(leases.path(Key{"a", "b"}), "/apis/coordination.k8s.io/v1/namespaces/a/leases/b");
  EXPECT_EQ(deployments.path(Key{"a", "b"}, "status"), "/apis/apps/v1/namespaces/a/deployments/b/status");
}

TEST(ResourceType, NoNameCanChangeThePath) {
  EXPECT_EQ(pods.path(Key{"a", "../secrets?x=%"}), "/api/v1/namespaces/a/pods/..%2Fsecrets%3Fx%3D%25");
}

TEST(StringMap, KeepsEntriesSortedAndReplaces) {
  StringMap map{{"b", "2"}, {"a", "1"}, {"c", ""}};
  map.set("b", "two");
  EXPECT_EQ(map.size(), 3u);
  EXPECT_EQ(map.get("b"), "two");
  EXPECT_EQ(map.find("c"), "");
  EXPECT_FALSE(map.find("d"));
  std::string keys;
  for (const auto& [key, value] : map) keys += key;
  EXPECT_EQ(keys, "abc");
  EXPECT_TRUE(map.erase("a"));
  EXPECT_FALSE(map.erase("a"));
  EXPECT_EQ(map, (StringMap{{"c", ""}, {"b", "two"}}));
}

TEST(StringMap, TakesViewsOfItself) {
  StringMap map{{"a", "value"}};
  map.set("b", map.get("a"));
  map.set("a", map.get("b"));
  EXPECT_EQ(map.get("b"), "value");
  EXPECT_EQ(map.get("a"), "value");
}

TEST(Timestamp, ReadsWhatGoWrites) {
  EXPECT_EQ(parse_timestamp("1970-01-01T00:00:01Z")->unix_us, 1'000'000);
  EXPECT_EQ(parse_timestamp("2026-11-30T10:00:00.123456Z")->unix_us % 1'000'000, 123'456);
  EXPECT_EQ(parse_timestamp("2026-11-30T10:00:00.5+01:30"), parse_timestamp("2026-11-30T08:30:00.5Z"));
  EXPECT_EQ(format_micro_time(*parse_timestamp("2026-11-30T10:00:00.123456Z")), "2026-11-30T10:00:00.123456Z");
  EXPECT_EQ(format_time(*parse_timestamp("2024-02-29T23:59:59Z")), "2024-02-29T23:59:59Z");
}

TEST(Timestamp, RefusesWhatIsNoTime) {
  for (const char* text : {"", "2026-11-30", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-30T10:00:00",
                           "2026-11-30T10:00:00.Z", "2026-11-30T24:00:00Z", "2026-11-30T10:00:00Zx"}) {
    EXPECT_FALSE(parse_timestamp(text)) << text;
  }
}

TEST(ObjectMeta, KeepsWhatWeUse) {
  const auto meta = parse_meta(parse_object(R"({"metadata":{
    "name":"p","namespace":"n","uid":"u-1","resourceVersion":"42","generation":3,
    "creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-02T00:00:00Z",
    "labels":{"x":"1"},"annotations":{"penstock.dev/desired":"h","kubectl.kubernetes.io/last-applied-configuration":"{}"},
    "ownerReferences":[{"kind":"Other","name":"o","uid":"u-0"},
                       {"kind":"WorkerGroup","name":"g","uid":"u-2","controller":true}],
    "finalizers":["a/b"],"managedFields":[{}]}})"));
  ASSERT_TRUE(meta);
  EXPECT_EQ(meta->key(), (Key{"n", "p"}));
  EXPECT_EQ(meta->resource_version, 42u);
  EXPECT_EQ(meta->generation, 3);
  EXPECT_TRUE(meta->deleted);
  EXPECT_EQ(meta->labels, (StringMap{{"x", "1"}}));
  EXPECT_EQ(meta->annotations, (StringMap{{"penstock.dev/desired", "h"}}));
  ASSERT_TRUE(meta->controller);
  EXPECT_EQ(meta->controller->uid, "u-2");
  EXPECT_EQ(meta->finalizers, std::vector<std::string>{"a/b"});
}

TEST(ObjectMeta, OddFieldsDoNotStopIt) {
  const auto meta = parse_meta(parse_object(R"({"metadata":{"name":"p","labels":7,"generation":"x","finalizers":[1],
    "ownerReferences":{"a":1},"resourceVersion":"not-a-number","annotations":{"penstock.dev/a":5}}})"));
  ASSERT_TRUE(meta);
  EXPECT_EQ(meta->resource_version, 0u);
  EXPECT_TRUE(meta->labels.empty());
  EXPECT_TRUE(meta->annotations.empty());
  EXPECT_FALSE(parse_meta(parse_object("{}")));
  EXPECT_FALSE(parse_meta(parse_object(R"({"metadata":{"name":""}})")));
}

TEST(ObjectMeta, MakesObjectsAndOwners) {
  const json::Object object = make_object(leases, {"n", "l"}, {{"a", "b"}});
  EXPECT_EQ(text_at(object, {"apiVersion"}), "coordination.k8s.io/v1");
  EXPECT_EQ(text_at(object, {"metadata", "labels", "a"}), "b");
  EXPECT_EQ(object_at(object, {"metadata", "annotations"}), nullptr);
  ObjectMeta owner;
  owner.name = "o";
  owner.uid = "u";
  const json::Object reference = controller_reference(leases, owner);
  EXPECT_EQ(bool_at(reference, {"controller"}), true);
  EXPECT_EQ(text_at(reference, {"uid"}), "u");
}

TEST(Conditions, TransitionTimeMovesOnlyWithTheStatus) {
  Conditions conditions;
  const Timestamp first = Timestamp::from_seconds(100), later = Timestamp::from_seconds(200);
  Condition ready{"Ready", ConditionStatus::no, "Waiting", "1 of 2", 1, {}};
  EXPECT_EQ(set_condition(conditions, ready, first), ConditionChange::status);
  EXPECT_EQ(set_condition(conditions, ready, later), ConditionChange::none);
  ready.message = "still 1 of 2";
  EXPECT_EQ(set_condition(conditions, ready, later), ConditionChange::detail);
  EXPECT_EQ(find_condition(conditions, "Ready")->last_transition, first);
  ready.status = ConditionStatus::yes;
  EXPECT_EQ(set_condition(conditions, ready, later), ConditionChange::status);
  EXPECT_EQ(find_condition(conditions, "Ready")->last_transition, later);
  EXPECT_TRUE(is_true(conditions, "Ready"));
  EXPECT_FALSE(is_true(conditions, "Available"));
}

TEST(Conditions, SurviveARoundTripSorted) {
  Conditions conditions;
  set_condition(conditions, {"Ready", ConditionStatus::yes, "AllReady", "", 2, {}}, Timestamp::from_seconds(5));
  set_condition(conditions, {"Available", ConditionStatus::unknown, "New", "x", 2, {}}, Timestamp::from_seconds(6));
  json::Object status;
  status["conditions"] = to_json(conditions);
  EXPECT_EQ(parse_conditions(status), conditions);
  EXPECT_EQ(conditions[0].type, "Available");
  status["conditions"] = json::Array{1, json::Object(), "x"};
  EXPECT_TRUE(parse_conditions(status).empty());
}

}  // namespace
}  // namespace penstock::kube
