// What ten thousand pods cost: bytes a pod, and the peak of a relist, which must not hold two copies.
#include <gtest/gtest.h>
#include <malloc.h>

#include "common/kube/core/reflector.hpp"
#include "common/kube/model/conditions.hpp"

namespace penstock::kube {
namespace {

constexpr int pods = 10'000;

/// What a controller keeps of a pod.
struct Pod {
  ObjectMeta meta;
  std::string node;
  std::string phase;
  std::string address;
  Conditions conditions;
};

Result<Pod> project(const json::Object& object) {
  PENSTOCK_TRY(ObjectMeta meta, parse_meta(object));
  Pod pod;
  pod.meta = std::move(meta);
  pod.node = text_at(object, {"spec", "nodeName"}).value_or("");
  pod.phase = text_at(object, {"status", "phase"}).value_or("");
  pod.address = text_at(object, {"status", "podIP"}).value_or("");
  if (const json::Object* status = object_at(object, {"status"})) pod.conditions = parse_conditions(*status);
  return pod;
}

/// About 9 KB, as the API server sends them.
std::string pod_json(int number) {
  const std::string id = std::to_string(100'000 + number);
  std::string text = R"({"metadata":{"name":"service-decode-)" + id +
                     R"(-0-0","namespace":"serving","uid":"00000000-0000)" + R"(-0000-0000-000000)" + id +
                     R"(","resourceVersion":")" + id + R"(","creationTimestamp":"2026-11-30T10:00:00Z","labels":{)";
  for (const char* label : {"service", "role", "role-type", "group", "epoch", "rank", "revision", "pairing"}) {
    const std::string value = std::string_view(label) == "service" ? "chat" : "value-" + id;
    text += R"("penstock.dev/)" + std::string(label) + R"(":")" + value + R"(",)";
  }
  text +=
      R"("app.kubernetes.io/managed-by":"penstock"},"annotations":{"penstock.dev/desired":"h1:0123456789abcdef",)"
      R"("kubectl.kubernetes.io/last-applied-configuration":")" +
      std::string(2000, 'x') +
      R"("},"ownerReferences":[{"apiVersion":"penstock.dev/v1alpha1","kind":"WorkerGroup","name":"service-decode-)" +
      id + R"(","uid":"11111111-0000-0000-0000-000000)" + id + R"(","controller":true}],"managedFields":[)";
  for (int i = 0; i < 20; ++i) {
    text += std::string(i > 0 ? "," : "") + R"({"manager":"kubelet","fieldsV1":{"f:status":{"f:conditions":{"k:)" +
            std::to_string(i) + R"(":{"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{}}}}}})";
  }
  text +=
      R"(]},"spec":{"nodeName":"node-)" + std::to_string(number % 500) + R"(","containers":[{"name":"worker","env":[)";
  for (int i = 0; i < 40; ++i) {
    text += std::string(i > 0 ? "," : "") + R"({"name":"VARIABLE_)" + std::to_string(i) + R"(","value":"some value"})";
  }
  text += R"(]}]},"status":{"phase":"Running","podIP":"10.20.30.40","conditions":[)";
  for (const char* type : {"PodScheduled", "Initialized", "ContainersReady", "Ready"}) {
    text += std::string(type[0] == 'P' ? "" : ",") + R"({"type":")" + type +
            R"(","status":"True","lastTransitionTime":"2026-11-30T10:00:00Z"})";
  }
  return text + "]}}";
}

/// Feeds a whole list and gives the most bytes that were in use meanwhile.
std::size_t feed_list(Reflector& reflector, TimePoint now) {
  reflector.next(now);
  std::size_t most = 0;
  EXPECT_TRUE(reflector.on_bytes(R"({"kind":"PodList","items":[)", now));
  for (int i = 0; i < pods; ++i) {
    EXPECT_TRUE(reflector.on_bytes((i > 0 ? "," : "") + pod_json(i), now));
    if (i % 1000 == 0 || i == pods - 1) most = std::max(most, mallinfo2().uordblks);
  }
  EXPECT_TRUE(reflector.on_bytes(R"(],"metadata":{"resourceVersion":"200000"}})", now));
  reflector.on_end(StreamEnd::closed, now);
  return std::max(most, mallinfo2().uordblks);
}

TEST(KubeMemory, TenThousandPodsAndARelist) {
  Store<Pod> store({"penstock.dev/group", "penstock.dev/service"});
  StoreSink<Pod> sink(store, project);
  WatchOptions options;
  options.first_list = FirstList::paged;
  Reflector reflector(options, sink, 1);
  const TimePoint now{std::chrono::hours(1)};
  const std::size_t before = mallinfo2().uordblks;
  if (before == 0) GTEST_SKIP() << "this allocator doesn't count";
  feed_list(reflector, now);
  ASSERT_EQ(store.size(), static_cast<std::size_t>(pods));
  const std::size_t held = mallinfo2().uordblks - before;
  RecordProperty("bytes_a_pod", static_cast<int>(held / pods));
  EXPECT_LE(held / pods, 2048u);
  ApiStatus gone;
  gone.code = 410;
  reflector.next(now);
  reflector.on_failed(gone, now);
  const std::size_t most = feed_list(reflector, now + std::chrono::minutes(1)) - before;
  RecordProperty("relist_bytes_a_pod", static_cast<int>((most - held) / pods));
  EXPECT_LE((most - held) / pods, 400u) << "what did not change is not held twice";
  EXPECT_EQ(store.size(), static_cast<std::size_t>(pods));
}

}  // namespace
}  // namespace penstock::kube
