// Writes as requests: paths, queries, content types, preconditions.
#include "common/kube/model/write.hpp"

#include <gtest/gtest.h>

#include "common/kube/model/known_types.hpp"

namespace penstock::kube {
namespace {

json::Value body_of(const WriteRequest& request) {
  auto body = json::parse(request.body);
  EXPECT_TRUE(body);
  return body ? *body : json::Value();
}

TEST(Write, ApplySaysWhoAndWhetherByForce) {
  const Apply apply{pods, {"n", "p"}, make_object(pods, {"n", "p"}), "penstock", Force::yes};
  const WriteRequest request = to_request(apply, DryRun::yes);
  EXPECT_EQ(request.method, "PATCH");
  EXPECT_EQ(request.content_type, "application/apply-patch+yaml");
  EXPECT_EQ(request.target, "/api/v1/namespaces/n/pods/p?fieldManager=penstock&force=true&dryRun=All");
}

TEST(Write, ApplyStatusGoesToTheSubresource) {
  const WriteRequest request = to_request(ApplyStatus{deployments, {"n", "d"}, {}, "penstock", Force::no});
  EXPECT_EQ(request.target, "/apis/apps/v1/namespaces/n/deployments/d/status?fieldManager=penstock&force=false");
}

TEST(Write, MergePatchCarriesItsPreconditions) {
  Patch patch;
  patch.type = pods;
  patch.key = {"n", "p"};
  patch.body = json::Object{{"metadata", json::Object{{"labels", json::Object{{"a", nullptr}}}}}};
  patch.preconditions = {"u", 7};
  const json::Value body = body_of(to_request(patch));
  EXPECT_EQ(text_at(body.as_object(), {"metadata", "uid"}), "u");
  EXPECT_EQ(text_at(body.as_object(), {"metadata", "resourceVersion"}), "7");
  EXPECT_NE(object_at(body.as_object(), {"metadata", "labels"}), nullptr);
}

TEST(Write, JsonPatchTestsFirst) {
  Patch patch;
  patch.type = pods;
  patch.key = {"n", "p"};
  patch.kind = PatchKind::json;
  patch.body = json::Array{json::Object{{"op", "remove"}, {"path", "/spec/schedulingGates/0"}}};
  patch.preconditions = {"u", 0};
  const json::Value body = body_of(to_request(patch));
  ASSERT_EQ(body.as_array().size(), 2u);
  EXPECT_EQ(text_at(body.as_array()[0].as_object(), {"op"}), "test");
  EXPECT_EQ(text_at(body.as_array()[1].as_object(), {"op"}), "remove");
}

TEST(Write, DeleteNamesTheObjectItMeans) {
  Delete remove;
  remove.type = pods;
  remove.key = {"n", "p"};
  remove.preconditions = {"u", 9};
  remove.propagation = Propagation::foreground;
  remove.grace_period_s = 0;
  const json::Value body = body_of(to_request(remove, DryRun::yes));
  EXPECT_EQ(text_at(body.as_object(), {"preconditions", "uid"}), "u");
  EXPECT_EQ(text_at(body.as_object(), {"preconditions", "resourceVersion"}), "9");
  EXPECT_EQ(text_at(body.as_object(), {"propagationPolicy"}), "Foreground");
  EXPECT_EQ(integer_at(body.as_object(), {"gracePeriodSeconds"}), 0);
  EXPECT_NE(array_at(body.as_object(), {"dryRun"}), nullptr);
}

TEST(Write, DescribesItself) {
  EXPECT_EQ(describe(Create{pods, "n", make_object(pods, {"n", "p"})}), "create Pod n/p");
  EXPECT_EQ(describe(Delete{nodes, {"", "x"}, {}, Propagation::background, {}}), "delete Node x");
}

}  // namespace
}  // namespace penstock::kube
