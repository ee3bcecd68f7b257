// The cache: indexes, relists, tombstones.
#include "common/kube/core/store.hpp"

#include <gtest/gtest.h>

#include <string>

namespace penstock::kube {
namespace {

struct Thing {
  ObjectMeta meta;
  int value = 0;
};

Thing thing(std::string name, std::uint64_t version, int value = 0) {
  Thing made;
  made.meta.namespace_ = "n";
  made.meta.uid = "uid-" + name;
  made.meta.name = std::move(name);
  made.meta.resource_version = version;
  made.value = value;
  return made;
}

/// Writes down what the store tells: "+a", "~a", "-a", with "!" for changes of a relist.
struct Journal {
  explicit Journal(Store<Thing>& store) {
    store.observe([this](const Change<Thing>& change) {
      text += change.origin == Origin::sync ? "!" : "";
      text += change.before == nullptr ? "+" : change.after == nullptr ? "-" : "~";
      text += (change.after != nullptr ? change.after : change.before)->meta.name + " ";
    });
  }
  std::string take() { return std::exchange(text, {}); }
  std::string text;
};

TEST(Store, FindsByKeyOwnerAndLabel) {
  Store<Thing> store({"role"});
  Thing a = thing("a", 1), b = thing("b", 2);
  a.meta.labels.set("role", "decode");
  a.meta.controller = ControllerOwner{"Group", "g", "owner-1"};
  b.meta.labels.set("role", "decode");
  store.upsert(b);
  store.upsert(a);
  EXPECT_EQ(store.find({"n", "a"})->meta.uid, "uid-a");
  EXPECT_EQ(store.find({"m", "a"}), nullptr);
  EXPECT_EQ(store.owned_by("owner-1").size(), 1u);
  const auto decode = store.with_label("role", "decode");
  ASSERT_EQ(decode.size(), 2u);
  EXPECT_EQ(decode[0]->meta.name, "a") << "in the order of keys";
  a.meta.labels.set("role", "prefill");
  a.meta.controller.reset();
  store.upsert(a);
  EXPECT_EQ(store.with_label("role", "decode").size(), 1u);
  EXPECT_EQ(store.with_label("role", "prefill").size(), 1u);
  EXPECT_TRUE(store.owned_by("owner-1").empty());
  store.erase({"n", "a"}, 9);
  EXPECT_TRUE(store.with_label("role", "prefill").empty());
  EXPECT_EQ(store.version(), 9u);
}

TEST(Store, InNamespaceStopsAtItsEnd) {
  Store<Thing> store;
  for (const char* space : {"a", "n", "na"}) {
    Thing one = thing("x", 1);
    one.meta.namespace_ = space;
    store.upsert(one);
  }
  EXPECT_EQ(store.in_namespace("n").size(), 1u);
  EXPECT_TRUE(store.in_namespace("nb").empty());
  EXPECT_EQ(store.all().size(), 3u);
}

TEST(Store, ReplaceShowsMissedChangesOnce) {
  Store<Thing> store;
  Journal journal(store);
  for (const char* name : {"a", "b", "c"}) store.upsert(thing(name, 1));
  journal.take();
  store.begin_replace();
  store.stage(thing("a", 1));
  store.stage(thing("b", 5, 7));
  store.stage(thing("d", 6));
  EXPECT_EQ(store.size(), 3u) << "nothing shows before the commit";
  EXPECT_EQ(journal.take(), "");
  store.commit_replace(6);
  EXPECT_EQ(journal.take(), "!-c !~b !+d ");
  EXPECT_TRUE(store.synced());
  EXPECT_EQ(store.find({"n", "b"})->value, 7);
}

TEST(Store, StagingTakesEventsThatComeDuringTheList) {
  Store<Thing> store;
  store.upsert(thing("a", 1));
  Journal journal(store);
  store.begin_replace();
  store.stage(thing("a", 1));
  store.stage(thing("a", 2));
  store.stage(thing("b", 3));
  store.unstage({"n", "b"});
  store.commit_replace(3);
  EXPECT_EQ(journal.take(), "!~a ");
}

TEST(Store, AnObjectThatCannotBeReadIsNotDeleted) {
  Store<Thing> store;
  store.upsert(thing("a", 1));
  Journal journal(store);
  store.begin_replace();
  store.stage_unchanged({"n", "a"});
  store.stage_unchanged({"n", "never-seen"});
  store.commit_replace(3);
  EXPECT_EQ(journal.take(), "");
  EXPECT_EQ(store.size(), 1u);
}

TEST(Store, AbandonedReplaceLeavesNoTrace) {
  Store<Thing> store;
  store.upsert(thing("a", 1));
  store.begin_replace();
  store.stage(thing("b", 2));
  store.abandon_replace();
  store.begin_replace();
  store.stage(thing("a", 1));
  store.commit_replace(2);
  EXPECT_EQ(store.size(), 1u);
}

TEST(Store, AnObjectMadeAnewIsTwoChanges) {
  Store<Thing> store;
  Journal journal(store);
  store.upsert(thing("a", 1));
  Thing again = thing("a", 2);
  again.meta.uid = "other";
  store.upsert(again);
  EXPECT_EQ(journal.take(), "+a -a +a ");
}

TEST(Store, VersionFollowsEventsAndBookmarksForward) {
  Store<Thing> store;
  EXPECT_FALSE(store.reached(1));
  store.upsert(thing("a", 5));
  store.advance(8);
  store.advance(3);
  EXPECT_TRUE(store.reached(8));
  EXPECT_FALSE(store.reached(9));
  store.begin_replace();
  store.commit_replace(2);
  EXPECT_EQ(store.version(), 2u) << "a server restored from a backup counts from there";
}

}  // namespace
}  // namespace penstock::kube
