#include "operator/runtime/changes.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace penstock::ctl {
namespace {

kube::ObjectMeta meta() {
  kube::ObjectMeta out;
  out.namespace_ = "ns";
  out.name = "chat";
  out.uid = "u";
  out.generation = 3;
  out.resource_version = 7;
  out.labels.set("a", "b");
  return out;
}

TEST(Changes, ComingAndGoingAreEdits) {
  const kube::ObjectMeta one = meta();
  EXPECT_TRUE(is_edit(nullptr, &one));
  EXPECT_TRUE(is_edit(&one, nullptr));
}

TEST(Changes, AStatusIsNoEdit) {
  const kube::ObjectMeta before = meta();
  kube::ObjectMeta after = meta();
  after.resource_version = 8;
  EXPECT_FALSE(is_edit(&before, &after));
}

struct Member {
  bool is_lost = false;
  bool lost() const { return is_lost; }
};

TEST(Changes, ALossIsToldOnce) {
  const Member well, bad{true};
  const auto is = [](const Member* before, const Member* after) {
    return is_loss(kube::Change<Member>{before, after, kube::Origin::live});
  };
  EXPECT_TRUE(is(&well, &bad));
  EXPECT_TRUE(is(&well, nullptr)) << "its end was missed";
  EXPECT_FALSE(is(&bad, nullptr));
  EXPECT_FALSE(is(&well, &well));
  EXPECT_FALSE(is(nullptr, &bad));
}

TEST(Changes, WhatIsAskedForIs) {
  const std::function<void(kube::ObjectMeta&)> edits[] = {
      [](auto& one) { one.uid = "v"; },
      [](auto& one) { ++one.generation; },
      [](auto& one) { one.deleted = kube::Timestamp::from_seconds(1); },
      [](auto& one) { one.labels.set("a", "c"); },
      [](auto& one) { one.annotations.set("penstock.dev/drain-deadline", "1"); },
      [](auto& one) { one.controller = kube::ControllerOwner{"LLMService", "chat", "u"}; },
      [](auto& one) { one.finalizers.emplace_back("f"); }};
  const kube::ObjectMeta before = meta();
  for (const auto& edit : edits) {
    kube::ObjectMeta after = meta();
    edit(after);
    EXPECT_TRUE(is_edit(&before, &after));
  }
}

}  // namespace
}  // namespace penstock::ctl
