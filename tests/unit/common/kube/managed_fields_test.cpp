#include "common/kube/core/managed_fields.hpp"

#include <gtest/gtest.h>

namespace penstock::kube {
namespace {

TEST(ManagedFields, AreTakenOutWholeWhateverTheyHold) {
  ManagedFieldsFilter filter;
  const std::string head = R"({"kind":"Pod","metadata":{"name":"a",)", tail = R"(},"spec":{"list":[1,[2]]}})";
  for (const char* inside : {"", "1", R"({"a":[{"b":"]"}]})", R"({"k:{\"name\":\"[\"}":{}},{"f:x":"\\"})"}) {
    EXPECT_EQ(filter.without(head + R"("managedFields":[)" + inside + "]" + tail),
              head + R"("managedFields":[])" + tail);
  }
}

TEST(ManagedFields, AnObjectWithoutThemIsAsItWas) {
  ManagedFieldsFilter filter;
  for (const std::string text : {R"({"metadata":{"name":"a"}})", R"({"a":"\"managedFields\":[1]"})", "", "["}) {
    EXPECT_EQ(filter.without(text), text);
  }
}

TEST(ManagedFields, AListThatDoesNotEndIsLeftToTheParser) {
  ManagedFieldsFilter filter;
  const std::string whole = R"({"managedFields":[{"a":"]\"","b":[]}]})";
  const std::size_t end = whole.rfind(']') + 1;
  for (std::size_t size = 0; size < end; ++size)
    EXPECT_EQ(filter.without(whole.substr(0, size)), whole.substr(0, size));
  EXPECT_EQ(filter.without(whole.substr(0, end)), R"({"managedFields":[])");
}

TEST(ManagedFields, OnlyTheFirstAreTheMetadatas) {
  ManagedFieldsFilter filter;
  EXPECT_EQ(filter.without(R"({"metadata":{"managedFields":[1]},"spec":{"managedFields":[2]}})"),
            R"({"metadata":{"managedFields":[]},"spec":{"managedFields":[2]}})");
}

}  // namespace
}  // namespace penstock::kube
