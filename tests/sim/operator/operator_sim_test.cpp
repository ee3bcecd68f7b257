// The operator against a cluster that lags, refuses, forgets and breaks. A run is a seed; a failure prints it. Each run
// deploys a service, rolls it, scales it, and must end where a run without faults ends, with no write in the steady
// state. Checkers look at the truth on the API server after every turn; seeded bugs prove that they see.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "operator/core/names.hpp"
#include "tests/sim/operator/cluster.hpp"
#include "tests/sim/operator/operator_under_test.hpp"

namespace penstock::sim {
namespace {

struct GroupTruth {
  std::string role, revision, pairing;
  bool draining = false, ready = false;
};

std::string label_of(const json::Object& object, std::string_view name) {
  return std::string(kube::text_at(object, {"metadata", "labels", name}).value_or(""));
}

std::vector<GroupTruth> groups_of(const ApiServer& api) {
  std::map<std::string, std::vector<ctl::Pod>> pods;
  for (const auto& object : api.list("pods")) {
    pods[label_of(*object, ctl::label::group)].push_back(ctl::parse_pod(*object).value());
  }
  std::vector<GroupTruth> out;
  for (const auto& object : api.list("workergroups.penstock.dev")) {
    GroupTruth group{label_of(*object, ctl::label::role), label_of(*object, ctl::label::revision),
                     label_of(*object, ctl::label::pairing), false, false};
    group.draining = kube::text_at(*object, {"metadata", "annotations", ctl::annotation::drain_deadline}).has_value();
    std::set<std::string> ranks;
    for (const auto& pod : pods[std::string(*kube::text_at(*object, {"metadata", "name"}))]) {
      if (pod.ready && !pod.lost()) ranks.insert(std::string(pod.meta.labels.get(ctl::label::rank)));
    }
    group.ready = static_cast<std::int64_t>(ranks.size()) == kube::integer_at(*object, {"spec", "size"});
    out.push_back(std::move(group));
  }
  return out;
}

/// What a run ends as: independent of names, times and order.
std::multiset<std::string> end_state(const ApiServer& api) {
  std::multiset<std::string> out;
  for (const auto& group : groups_of(api)) {
    out.insert("group " + group.role + " " + group.revision + " " + group.pairing +
               (group.ready ? " ready" : " not ready") + (group.draining ? " draining" : ""));
  }
  for (const char* type : {"services", "configmaps", "secrets", "serviceaccounts", "roles.rbac.authorization.k8s.io",
                           "rolebindings.rbac.authorization.k8s.io", "poddisruptionbudgets.policy",
                           "networkpolicies.networking.k8s.io", "deployments.apps", "controllerrevisions.apps"}) {
    for (const auto& object : api.list(type)) {
      const std::string name(*kube::text_at(*object, {"metadata", "name"}));
      // Groups have Services of their own, with the group's random name.
      out.insert(std::string(type) + " " + (label_of(*object, ctl::label::group).empty() ? name : "of a group"));
    }
  }
  out.insert("podgroups " + std::to_string(api.list("podgroups.scheduling.k8s.io").size()));
  for (const auto& object : api.list("llmservices.penstock.dev")) {
    const auto* conditions = kube::array_at(*object, {"status", "conditions"});
    for (const auto& condition : conditions == nullptr ? json::Array{} : *conditions) {
      out.insert("condition " + std::string(*kube::text_at(condition.as_object(), {"type"})) + " " +
                 std::string(*kube::text_at(condition.as_object(), {"status"})));
    }
  }
  return out;
}

class Story {
 public:
  Story(std::uint64_t seed, Faults faults, int operators = 1)
      : cluster_(api_, seed), random_(seed * 7919), seed_(seed) {
    for (int i = 0; i < operators; ++i) {
      operators_.push_back(std::make_unique<OperatorUnderTest>(api_, "operator-" + std::to_string(i),
                                                               seed * 31 + std::uint64_t(i), faults));
    }
  }

  std::string story() {
    cluster_.apply_service(two_roles(2, 3, "worker:1"));
    if (!settle(3000)) return "the first deployment didn't end";
    check_ = true;
    desired_ = {{"prefill", 2}, {"decode", 3}};
    cluster_.edit_service([](json::Object& spec) { spec = two_roles(2, 3, "worker:2"); });
    if (!settle(6000)) return broken_.empty() ? "the roll didn't end" : broken_;
    check_ = false;
    cluster_.edit_service([](json::Object& spec) { spec = two_roles(1, 4, "worker:2"); });
    if (!settle(3000)) return "scaling didn't end";
    return quiet();
  }

  /// Pods and a node are lost meanwhile; only the end counts.
  std::string hard_story() {
    cluster_.apply_service(two_roles(2, 3, "worker:1"));
    for (int i = 0; i < 6; ++i) {
      turns(40);
      (i % 2 == 0) ? cluster_.kill_random_pod() : cluster_.fail_random_pod();
      if (i == 2) cluster_.edit_service([](json::Object& spec) { spec = two_roles(2, 3, "worker:2"); });
      if (i == 4) cluster_.lose_node("node-0");
    }
    cluster_.edit_service([](json::Object& spec) { spec = two_roles(1, 4, "worker:2"); });
    if (!settle(6000)) return "it didn't recover";
    return quiet();
  }

  std::string quiet() {
    for (auto& one : operators_) {
      one->faults().crash = one->faults().refuse = one->faults().lose_answer = one->faults().lag =
          one->faults().relist = 0;
    }
    turns(60);
    const auto before = api_.requests();
    for (auto& one : operators_) one->catch_up();
    turns(40);
    if (api_.requests() != before) return std::to_string(api_.requests() - before) + " writes in the steady state";
    return {};
  }

  std::multiset<std::string> end() const { return end_state(api_); }
  ApiServer& api() { return api_; }
  Cluster& cluster() { return cluster_; }
  void turns(int count) {
    while (count-- > 0) turn();
  }

  bool settle(int turns_max) {
    int calm = 0;
    std::uint64_t version = 0;
    for (int i = 0; i < turns_max; ++i) {
      turn();
      if (!broken_.empty()) return false;
      calm = api_.version() == version ? calm + 1 : 0;
      version = api_.version();
      if (calm > 60 && ready()) return true;
    }
    return false;
  }

 private:
  void turn() {
    api_.now.unix_us += 2'000'000;
    if (operators_.size() > 1 && random_.below(20) == 0) holder_ = random_.below(operators_.size());
    for (auto& one : operators_) one->turn("operator-" + std::to_string(holder_), 4);
    cluster_.turn();
    if (check_) check();
  }

  bool ready() const {
    const auto groups = groups_of(api_);
    for (const auto& group : groups) {
      if (!group.ready || group.draining) return false;
    }
    const auto services = api_.list("llmservices.penstock.dev");
    return services.empty() || kube::text_at(*services[0], {"status", "updateRevision"}) ==
                                   kube::text_at(*services[0], {"status", "currentRevision"});
  }

  /// Surge 1, unavailable 0, and no pod fails in these runs: capacity must not move at all.
  void check() {
    std::map<std::string, int> ready, live;
    std::map<std::string, std::set<std::string>> sides;
    for (const auto& group : groups_of(api_)) {
      if (group.draining) continue;
      ++live[group.role];
      if (!group.ready) continue;
      ++ready[group.role];
      sides[group.pairing].insert(group.role);
    }
    const auto breaks = [&](std::string rule) {
      if (broken_.empty()) broken_ = std::move(rule) + ", seed " + std::to_string(seed_);
    };
    for (const auto& [role, desired] : desired_) {
      if (ready[role] < desired) breaks("capacity floor of " + role + ": " + std::to_string(ready[role]));
      if (live[role] > desired + 1) breaks("surge of " + role + ": " + std::to_string(live[role]));
    }
    bool pair = false;
    for (const auto& [key, roles] : sides) pair |= roles.size() == 2;
    if (!pair) breaks("no pairing key has both sides");
  }

  ApiServer api_;
  Cluster cluster_;
  Random random_;
  std::uint64_t seed_;
  std::vector<std::unique_ptr<OperatorUnderTest>> operators_;
  std::size_t holder_ = 0;
  bool check_ = false;
  std::map<std::string, int> desired_;
  std::string broken_;
};

Faults weather() {
  Faults faults;
  faults.crash = 20;
  faults.refuse = 50;
  faults.lose_answer = 20;
  faults.lag = 400;
  faults.relist = 10;
  return faults;
}

TEST(OperatorSim, EndsWithoutFaults) {
  Story run(1, {});
  EXPECT_EQ(run.story(), "");
  const auto end = run.end();
  EXPECT_EQ(std::count_if(end.begin(), end.end(), [](const auto& line) { return line.starts_with("group decode"); }),
            4);
  for (const auto& line : end) {
    if (line.starts_with("condition")) {
      EXPECT_EQ(line.ends_with(" False"), line.find("Degraded") != std::string::npos) << line;
    }
  }
}

TEST(OperatorSim, EndsTheSameInAnyWeather) {
  Story calm(1, {});
  ASSERT_EQ(calm.story(), "");
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Story run(seed, weather());
    ASSERT_EQ(run.story(), "") << "seed " << seed;
    ASSERT_EQ(run.end(), calm.end()) << "seed " << seed;
  }
}

TEST(OperatorSim, TwoLeadersAreOne) {
  Story calm(1, {});
  ASSERT_EQ(calm.story(), "");
  for (std::uint64_t seed = 100; seed < 104; ++seed) {
    Story run(seed, weather(), 2);
    ASSERT_EQ(run.story(), "") << "seed " << seed;
    ASSERT_EQ(run.end(), calm.end()) << "seed " << seed;
  }
}

TEST(OperatorSim, RecoversFromLostPodsAndNodes) {
  Story calm(1, {});
  ASSERT_EQ(calm.story(), "");
  for (std::uint64_t seed = 200; seed < 204; ++seed) {
    Story run(seed, weather());
    ASSERT_EQ(run.hard_story(), "") << "seed " << seed;
    ASSERT_EQ(run.end(), calm.end()) << "seed " << seed;
  }
}

TEST(OperatorSim, AnUpgradeOfTheOperatorWritesNothing) {
  Story run(5, {});
  ASSERT_EQ(run.story(), "");
  const auto before = run.api().requests();
  OperatorUnderTest next(run.api(), "operator-0", 99, {});
  for (int i = 0; i < 50; ++i) next.turn("operator-0", 8);
  EXPECT_EQ(run.api().requests(), before);
}

TEST(OperatorSim, NothingIsLeftOfADeletedService) {
  for (std::uint64_t seed = 300; seed < 304; ++seed) {
    Story run(seed, weather());
    run.cluster().apply_service(two_roles(2, 3, "worker:1"));
    run.turns(static_cast<int>(seed % 4) * 30);
    run.cluster().delete_service();
    run.turns(400);
    for (const char* type : {"workergroups.penstock.dev", "pods", "deployments.apps", "services", "secrets",
                             "podgroups.scheduling.k8s.io", "controllerrevisions.apps"}) {
      EXPECT_TRUE(run.api().list(type).empty()) << type << " seed " << seed;
    }
  }
}

bool some_seed_shows(Faults faults, int operators, std::string_view what) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Story run(seed, faults, operators);
    if (run.story().find(what) != std::string::npos) return true;
  }
  return false;
}

TEST(OperatorSimCheckers, SeeAMissingBarrier) {
  Faults faults = weather();
  faults.no_barrier = true;
  EXPECT_TRUE(some_seed_shows(faults, 1, "surge"));
}

TEST(OperatorSimCheckers, SeeABrokenFloor) {
  Faults faults;
  faults.no_floor = true;
  EXPECT_TRUE(some_seed_shows(faults, 1, "capacity floor"));
}

TEST(OperatorSimCheckers, SeeTwoWriters) {
  Faults faults = weather();
  faults.no_fence = true;
  EXPECT_TRUE(some_seed_shows(faults, 2, "surge"));
}

TEST(OperatorSimCheckers, SeeWritesInTheSteadyState) {
  Faults faults;
  faults.always_writes = true;
  EXPECT_TRUE(some_seed_shows(faults, 1, "writes in the steady state"));
}

}  // namespace
}  // namespace penstock::sim
