// Pods of the router's service become workers to connect to.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "router/discovery/pods.hpp"

namespace penstock::router {
namespace {

void put(kube::Store<WorkerPod>& store, const char* text) {
  auto pod = parse_worker_pod(boost::json::parse(text).as_object());
  ASSERT_TRUE(pod) << pod.error().message;
  store.upsert(std::move(*pod));
}

TEST(WorkerPods, RunningOnesWithAnAddressAreDialled) {
  kube::Store<WorkerPod> store;
  put(store, R"({"metadata": {"name": "a", "uid": "1"}, "status": {"phase": "Running", "podIP": "10.0.0.1"}})");
  put(store, R"({"metadata": {"name": "b", "uid": "2"}, "status": {"phase": "Pending"}})");
  put(store, R"({"metadata": {"name": "c", "uid": "3"}, "status": {"phase": "Succeeded", "podIP": "10.0.0.3"}})");
  put(store, R"({"metadata": {"name": "d", "uid": "4"}, "status": {"phase": "Running", "podIP": "fd00::4"}})");
  const auto targets = worker_targets(store, 7000);
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_EQ(targets[0], (WorkerTarget{"10.0.0.1:7000", {}, false}));
  EXPECT_EQ(targets[1].address, "[fd00::4]:7000");
}

TEST(WorkerPods, LabelsSayWhereThePodIsAndWhatItPairsWith) {
  kube::Store<WorkerPod> store;
  put(store, R"({"metadata": {"name": "a", "uid": "1", "labels": {"topology.penstock.dev/rack": "r1",
                 "penstock.dev/pairing": "k", "penstock.dev/role": "decode"}},
                 "status": {"phase": "Running", "podIP": "10.0.0.1"}})");
  const auto targets = worker_targets(store, 7000);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].labels, (TopologyLabels{{"pairing", "k"}, {"rack", "r1"}}));
}

TEST(WorkerPods, DeletedAndDrainedOnesStayButAreTold) {
  kube::Store<WorkerPod> store;
  put(store, R"({"metadata": {"name": "a", "uid": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                 "status": {"phase": "Running", "podIP": "10.0.0.1"}})");
  put(store, R"({"metadata": {"name": "b", "uid": "2", "annotations": {"penstock.dev/drain-deadline": "2026-01-01T00:00:00Z"}},
                 "status": {"phase": "Running", "podIP": "10.0.0.2"}})");
  const auto targets = worker_targets(store, 7000);
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_TRUE(targets[0].is_draining);
  EXPECT_TRUE(targets[1].is_draining);
}

TEST(WorkerPods, AnOddPodIsAnErrorOfItsOwn) {
  EXPECT_FALSE(parse_worker_pod(boost::json::parse(R"({"status": {}})").as_object()));
}

}  // namespace
}  // namespace penstock::router
