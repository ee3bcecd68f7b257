// How many writes it takes to bring a service up: a group's share is what decides how fast a large fleet starts, since
// the API server's time goes by writes. The numbers are pinned: one more is a decision, not an accident.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/sim/operator/cluster.hpp"
#include "tests/sim/operator/operator_under_test.hpp"

namespace penstock::sim {
namespace {

constexpr Duration calm_end = std::chrono::seconds(20);

struct Written {
  std::map<std::string, std::uint64_t> counts;
  Duration took{};
};

/// Turns of `turn` until nothing has changed for a while, with so many looks each; what was written.
Written start(const json::Object& spec, Duration turn, std::uint32_t patience, int keys = 1000) {
  ApiServer api;
  ClusterOptions options;
  options.nodes = 40;
  options.patience = patience;
  Cluster cluster(api, 1, options);
  OperatorUnderTest one(api, "operator-0", 1, {});
  cluster.apply_service(spec);
  Duration calm{}, took{};
  for (std::uint64_t version = 0; calm < calm_end; version = api.version()) {
    api.now.unix_us += std::chrono::duration_cast<std::chrono::microseconds>(turn).count();
    one.turn("operator-0", keys);
    cluster.turn();
    took += turn;
    calm = api.version() == version ? calm + turn : Duration{};
  }
  for (const auto& service : api.list("llmservices.penstock.dev")) {
    EXPECT_EQ(kube::text_at(*service, {"status", "readyGroups"}), "20/20");
  }
  return {one.written(), took - calm};
}

std::uint64_t sum(const Written& written, std::string_view prefix) {
  std::uint64_t sum = 0;
  for (const auto& [what, count] : written.counts) sum += what.starts_with(prefix) ? count : 0;
  return sum;
}

json::Object twenty_groups() {
  return two_roles(10, 10, "worker:1");  // of one and of two pods
}

TEST(WriteCount, AGroupThatStartsAtOnceCostsItsObjectsAndOneStatus) {
  const Written written = start(twenty_groups(), std::chrono::milliseconds(200), 1);
  EXPECT_EQ(sum(written, "workergroups.penstock.dev create"), 20u);
  EXPECT_EQ(sum(written, "podgroups.scheduling.k8s.io"), 10u) << "of gangs only";
  EXPECT_EQ(sum(written, "pods create"), 30u);
  EXPECT_EQ(sum(written, "pods patch"), 20u) << "the leader's domains, for the router";
  EXPECT_EQ(sum(written, "workergroups.penstock.dev status"), 20u);
  EXPECT_EQ(sum(written, "services"), 2u) << "the router's and the gangs', none of a group's own";
  EXPECT_EQ(sum(written, "event Group"), 0u);
}

TEST(WriteCount, AGroupThatWaitsItsTurnTellsOfNothingMeanwhile) {
  const Written written = start(twenty_groups(), std::chrono::milliseconds(500), 1, 1);
  EXPECT_GE(written.took, std::chrono::seconds(10)) << "longer than any hold";
  EXPECT_EQ(sum(written, "workergroups.penstock.dev status"), 20u);
}

TEST(WriteCount, AGroupThatTakesItsTimeTellsOfItsStepsSeldom) {
  const Written written = start(twenty_groups(), std::chrono::seconds(2), 5);
  EXPECT_LE(sum(written, "workergroups.penstock.dev status"), 20u * 4);
  EXPECT_EQ(sum(written, "event Group"), 0u);
}

TEST(WriteCount, AServiceTellsOfItsGroupsOnceASecond) {
  const Written written = start(twenty_groups(), std::chrono::milliseconds(100), 10);
  const auto seconds =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(written.took).count());
  EXPECT_LE(sum(written, "llmservices.penstock.dev status"), seconds + 2) << "the first of all is at once";
}

}  // namespace
}  // namespace penstock::sim
