// Others that write while the operator does: an autoscaler that moves a role's count through its RoleScaler, and racks
// that gangs must stay within. A run is a seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <map>
#include <set>

#include "common/kube/model/known_types.hpp"
#include "operator/core/names.hpp"
#include "tests/sim/operator/cluster.hpp"
#include "tests/sim/operator/operator_under_test.hpp"

namespace penstock::sim {
namespace {

Faults weather() {
  Faults faults;
  faults.crash = 20;
  faults.refuse = 50;
  faults.lose_answer = 20;
  faults.lag = 400;
  faults.relist = 10;
  return faults;
}

json::Object scaled_roles() {
  json::Object spec = two_roles(2, 2, "worker:1");
  auto& decode = spec["roles"].as_array().at(1).as_object();
  decode["scaling"] = json::Object{{"mode", "External"}, {"min", 0}, {"max", 9}};
  return spec;
}

json::Object racked_roles() {
  json::Object spec = two_roles(2, 3, "worker:1");
  auto& decode = spec["roles"].as_array().at(1).as_object();
  decode["placement"] = json::Object{{"pack", json::Object{{"required", "Rack"}}}};
  return spec;
}

class World {
 public:
  World(std::uint64_t seed, Faults faults)
      : cluster(api, seed), random(seed * 31), one(api, "operator-0", seed, faults) {}

  void turns(int count) {
    while (count-- > 0) {
      api.now.unix_us += 2'000'000;
      one.turn("operator-0", 4);
      cluster.turn();
    }
  }
  void calm_down() {
    one.faults() = Faults();
    turns(400);
  }
  int groups(std::string_view role) const {
    int count = 0;
    for (const auto& object : api.list("workergroups.penstock.dev")) {
      const bool drains =
          kube::text_at(*object, {"metadata", "annotations", ctl::annotation::drain_deadline}).has_value();
      count += !drains && kube::text_at(*object, {"spec", "role"}) == role;
    }
    return count;
  }
  std::int64_t wanted() const {
    const auto scalers = api.list("rolescalers.penstock.dev");
    return scalers.empty() ? -1 : kube::integer_at(*scalers[0], {"spec", "replicas"}).value_or(-1);
  }

  ApiServer api;
  Cluster cluster;
  Random random;
  OperatorUnderTest one;
};

TEST(ScalingSim, AnAutoscalersCountIsFollowedAndNeverWrittenOver) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    World world(seed, weather());
    world.cluster.apply_service(scaled_roles());
    world.turns(150);
    ASSERT_EQ(world.wanted(), 2) << "the seed of the count, seed " << seed;
    const std::string name(*kube::text_at(*world.api.list("rolescalers.penstock.dev")[0], {"metadata", "name"}));
    int last = 0;
    for (int i = 0; i < 12; ++i) {
      last = static_cast<int>(world.random.below(6));
      world.cluster.scale(name, last);
      for (int k = 0; k < 20; ++k) {
        world.turns(1);
        ASSERT_EQ(world.wanted(), last) << "somebody else wrote the count, seed " << seed;
      }
      if (i == 6) {
        world.cluster.edit_service([](json::Object& spec) {
          const json::Object next = two_roles(2, 2, "worker:2");
          spec["roles"].as_array().at(1).as_object()["template"] = next.at("roles").at(1).at("template");
        });
      }
    }
    world.calm_down();
    EXPECT_EQ(world.groups("decode"), last) << "seed " << seed;
    EXPECT_EQ(world.groups("prefill"), 2) << "seed " << seed;
    const auto status = kube::integer_at(*world.api.list("rolescalers.penstock.dev")[0], {"status", "replicas"});
    EXPECT_EQ(status, last) << "what the autoscaler reads, seed " << seed;
    const auto before = world.api.requests();
    world.one.catch_up();
    world.turns(60);
    EXPECT_EQ(world.api.requests(), before) << "writes at rest, seed " << seed;
  }
}

TEST(RackSim, AGangThatRequiresARackIsNeverSpreadOverTwo) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    World world(seed, weather());
    world.cluster.apply_topology();
    world.cluster.apply_service(racked_roles());
    for (int i = 0; i < 6; ++i) {
      world.turns(40);
      if (i % 2 == 0) world.cluster.kill_random_pod();
      if (i == 3) world.cluster.lose_node("node-0");
    }
    world.calm_down();
    std::map<std::string, std::set<std::string>> racks;
    for (const auto& object : world.api.list("pods")) {
      const auto pod = ctl::parse_pod(*object).value();
      if (pod.meta.labels.get(ctl::label::role) != "decode" || !pod.bound() || pod.lost()) continue;
      const auto* node = world.api.find("nodes", {"", pod.node});
      racks[std::string(pod.meta.labels.get(ctl::label::group))].insert(
          std::string(*kube::text_at(*node, {"metadata", "labels", "rack"})));
    }
    EXPECT_EQ(racks.size(), 3u) << "seed " << seed;
    for (const auto& [group, values] : racks) EXPECT_EQ(values.size(), 1u) << group << " seed " << seed;
    for (const auto& object : world.api.list("workergroups.penstock.dev")) {
      if (kube::text_at(*object, {"spec", "role"}) != "decode") continue;
      const auto domain = kube::text_at(*object, {"status", "domain"});
      ASSERT_TRUE(domain) << "seed " << seed;
      EXPECT_TRUE(domain->starts_with("rack-")) << *domain;
    }
  }
}

TEST(TemplateSim, ARefusedTemplateLeavesWhatRunsAndRollsOnceItIsTaken) {
  World world(1, Faults());
  world.cluster.apply_service(two_roles(2, 2, "worker:1"));
  world.turns(100);
  bool refuses = true;
  world.api.refuse_create = [&](const kube::Create& write) -> std::optional<kube::ApiStatus> {
    const auto text = boost::json::serialize(write.body);
    if (!refuses || write.type != kube::pods || text.find("worker:2") == std::string::npos) return std::nullopt;
    return failure(422, "Invalid", "Pod is invalid: spec.containers[0].image");
  };
  world.cluster.edit_service([](json::Object& spec) { spec = two_roles(2, 2, "worker:2"); });
  world.turns(20);
  const auto template_valid = [&] {
    for (const auto& entry :
         *kube::array_at(*world.api.list("llmservices.penstock.dev")[0], {"status", "conditions"})) {
      if (kube::text_at(entry.as_object(), {"type"}) == "TemplateValid") {
        return std::string(*kube::text_at(entry.as_object(), {"status"})) + " " +
               std::string(*kube::text_at(entry.as_object(), {"reason"}));
      }
    }
    return std::string();
  };
  EXPECT_EQ(template_valid(), "False TemplateRejected");
  for (int i = 0; i < 5; ++i) {
    world.cluster.kill_random_pod();
    world.turns(30);
  }
  EXPECT_EQ(world.groups("prefill"), 2);
  EXPECT_EQ(world.groups("decode"), 2);
  for (const auto& object : world.api.list("pods")) {
    EXPECT_EQ(boost::json::serialize(*object).find("worker:2"), std::string::npos);
  }
  refuses = false;
  world.turns(1200);
  EXPECT_EQ(template_valid(), "True Valid");
  for (const auto& object : world.api.list("pods")) {
    EXPECT_EQ(boost::json::serialize(*object).find("worker:1"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::sim
