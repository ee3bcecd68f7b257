// Which requests go to a prefill and a decode worker, and which two.
#include <gtest/gtest.h>

#include "tests/unit/router/fleet_world.hpp"

namespace penstock::router {
namespace {

TEST(Split, LongPromptsGoToAPairAndShortOnesDoNot) {
  World world;
  const WorkerRef p = world.add(Role::prefill), d = world.add(Role::decode);
  world.warm_up();
  const auto blocks = chain(1, 100);
  const Placement pair = world.send(1600, blocks);
  EXPECT_EQ(pair.prefill, p);
  EXPECT_EQ(pair.worker, d);
  EXPECT_EQ(world.choose(200).why, "short remainder");
  EXPECT_EQ(world.choose(200).worker, d);
  world.cache(d, blocks);  // now the decode worker holds all but nothing of it
  const Placement cached = world.choose(1600, blocks);
  EXPECT_FALSE(cached.prefill);
  EXPECT_EQ(cached.worker, d);
}

TEST(Split, DifferentLayoutsAreNeverPaired) {
  World world;
  const WorkerRef p = world.add(Role::prefill);
  protocol::Welcome other = world.welcome(Role::decode);
  other.kv_layout_fingerprint = "another";
  const WorkerRef d = world.add(other);
  world.warm_up();
  const Placement placement = world.choose(5000);
  EXPECT_FALSE(placement.prefill);
  EXPECT_EQ(placement.worker, d);
  EXPECT_FALSE(world.fleet.readiness().reasons.empty());
  const WorkerRef partner = world.add(Role::decode);
  world.warm_up();
  const Placement pair = world.choose(5000);
  EXPECT_EQ(pair.prefill, p);
  EXPECT_EQ(pair.worker, partner);
}

TEST(Split, DifferentPairingKeysAreNeverPaired) {
  World world;
  const auto of_revision = [&](Role role, const std::string& key) {
    protocol::Welcome message = world.welcome(role);
    message.topology = {{"pairing", key}};
    return world.add(message);
  };
  const WorkerRef p_old = of_revision(Role::prefill, "old");
  const WorkerRef d_new = of_revision(Role::decode, "new");
  world.warm_up();
  EXPECT_FALSE(world.choose(5000).prefill);
  EXPECT_EQ(world.choose(5000).worker, d_new);
  const WorkerRef d_old = of_revision(Role::decode, "old");
  world.warm_up();
  EXPECT_EQ(world.choose(5000).prefill, p_old);
  EXPECT_EQ(world.choose(5000).worker, d_old);
}

TEST(Split, TheNearerDecodeWorkerWinsUnlessItIsBusy) {
  World world;
  const auto at = [&](Role role, const std::string& rack, const std::string& domain) {
    protocol::Welcome message = world.welcome(role);
    message.topology = {{"rack", rack}, {"nvlink-domain", domain}};
    return world.add(message);
  };
  const WorkerRef far = at(Role::decode, "r2", "n9");
  const WorkerRef p = at(Role::prefill, "r1", "n1");
  const WorkerRef near = at(Role::decode, "r1", "n2");
  const WorkerRef nearest = at(Role::decode, "r1", "n1");
  world.warm_up();
  for (const WorkerRef worker : {far, p, near, nearest}) world.report(worker, {});
  EXPECT_EQ(world.choose(5000).prefill, p);
  EXPECT_EQ(world.choose(5000).worker, nearest);
  // 5,000 tokens from another domain of the rack cost as much as 500 tokens of waiting.
  world.report(nearest, {.waiting_prefill_tokens = 600});
  EXPECT_EQ(world.choose(5000).worker, near);
  world.report(near, {.waiting_prefill_tokens = 600});
  EXPECT_EQ(world.choose(5000).worker, nearest);
  // ... and from another rack as much as 1,000.
  world.report(near, {.waiting_prefill_tokens = 1200});
  world.report(nearest, {.waiting_prefill_tokens = 1200});
  EXPECT_EQ(world.choose(5000).worker, far);
}

TEST(Split, LabelsOfAPodReplaceThoseOfTheWelcome) {
  World world;
  const WorkerRef p = world.add(Role::prefill);
  const WorkerRef d = world.add(Role::decode);
  world.warm_up();
  EXPECT_EQ(world.choose(5000).prefill, p);
  world.fleet.on_labels(p, {{"pairing", "old"}});
  EXPECT_FALSE(world.choose(5000).prefill);
  world.fleet.on_labels(d, {{"pairing", "old"}});
  EXPECT_EQ(world.choose(5000).prefill, p);
}

TEST(Split, PrefillWorkerIsTheLastResort) {
  World world;
  const WorkerRef p = world.add(Role::prefill), d = world.add(Role::decode);
  world.warm_up();
  world.fleet.on_disconnect(d);
  const Placement placement = world.choose(5000);
  EXPECT_EQ(placement.outcome, Outcome::placed);
  EXPECT_EQ(placement.worker, p);
  EXPECT_FALSE(placement.prefill);
}

}  // namespace
}  // namespace penstock::router
