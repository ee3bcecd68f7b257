// Objects out of bytes that are cut anywhere.
#include <gtest/gtest.h>

#include "common/kube/core/object_splitter.hpp"
#include "common/time/random.hpp"

namespace penstock::kube {
namespace {

using Shape = ObjectSplitter::Shape;
using Kind = ObjectSplitter::Piece::Kind;

struct Found {
  std::vector<std::string> objects;
  std::string envelope;
  std::size_t oversized = 0;
  bool failed = false;
  bool at_boundary = false;
};

/// Feeds the text in parts of at most `part` bytes, each in memory of its own.
Found split(Shape shape, std::string_view text, std::size_t part, SplitLimits limits = {}) {
  ObjectSplitter splitter(shape, limits);
  Found found;
  for (std::size_t at = 0; at < text.size() && !found.failed; at += part) {
    const std::string copy(text.substr(at, part));
    std::string_view input = copy;
    while (true) {
      auto piece = splitter.next(input);
      found.failed = !piece;
      if (!piece || !*piece) break;
      if ((*piece)->kind == Kind::object) found.objects.emplace_back((*piece)->text);
      if ((*piece)->kind == Kind::oversized) ++found.oversized;
      if ((*piece)->kind == Kind::envelope) found.envelope = (*piece)->text;
    }
  }
  found.at_boundary = splitter.at_boundary();
  return found;
}

constexpr std::string_view tricky = R"({"a":"}]\"{[","b":[{"c":"\\"}],"d":"ü\u007d"})";

TEST(ObjectSplitter, EventsComeWholeHoweverTheyAreCut) {
  const std::string text = std::string(tricky) + "\n{}\n  " + std::string(tricky) + "\r\n";
  for (std::size_t part = 1; part <= text.size(); ++part) {
    const Found found = split(Shape::events, text, part);
    ASSERT_EQ(found.objects, (std::vector<std::string>{std::string(tricky), "{}", std::string(tricky)})) << part;
    EXPECT_TRUE(found.at_boundary);
  }
}

TEST(ObjectSplitter, ListItemsAndEnvelopeHoweverTheyAreCut) {
  const std::string item(tricky);
  const std::string text = R"({"kind":"items","apiVersion":"v1","items": [)" + item + " , " + item +
                           R"(],"metadata":{"items":[{"not":"an item"}],"resourceVersion":"7"}})";
  for (std::size_t part = 1; part <= text.size(); ++part) {
    const Found found = split(Shape::list, text, part);
    ASSERT_EQ(found.objects, (std::vector<std::string>{item, item})) << part;
    EXPECT_EQ(found.envelope,
              R"({"kind":"items","apiVersion":"v1","items": [],"metadata":{"items":[{"not":"an item"}],)"
              R"("resourceVersion":"7"}})");
    EXPECT_TRUE(found.at_boundary);
  }
}

TEST(ObjectSplitter, EmptyAndNullLists) {
  for (const char* text : {R"({"metadata":{},"items":[]})", R"({"items":null,"metadata":{}})", R"({"items": [ ] })"}) {
    const Found found = split(Shape::list, text, 3);
    EXPECT_TRUE(found.objects.empty()) << text;
    EXPECT_FALSE(found.envelope.empty()) << text;
    EXPECT_FALSE(found.failed);
  }
}

TEST(ObjectSplitter, AnOversizedObjectIsPassedOver) {
  SplitLimits limits;
  limits.object_bytes_max = 40;
  const std::string big = R"({"x":")" + std::string(100, 'y') + R"("})";
  for (const std::size_t part : {1, 7, 1000}) {
    const Found found = split(Shape::events, "{\"a\":1}" + big + "{\"b\":2}", part, limits);
    EXPECT_EQ(found.objects, (std::vector<std::string>{"{\"a\":1}", "{\"b\":2}"}));
    EXPECT_EQ(found.oversized, 1u);
  }
}

TEST(ObjectSplitter, RefusesWhatIsNoStream) {
  EXPECT_TRUE(split(Shape::events, "<html>", 100).failed);
  EXPECT_TRUE(split(Shape::list, "[1]", 100).failed);
  EXPECT_TRUE(split(Shape::list, R"({"items":[1]})", 100).failed);
  EXPECT_TRUE(split(Shape::list, R"({"items":[]} x)", 100).failed);
  EXPECT_TRUE(split(Shape::list, R"({"x":")" + std::string(70 << 10, 'y'), 1000).failed) << "the envelope is bounded";
}

TEST(ObjectSplitter, KnowsAnUnfinishedEnd) {
  EXPECT_FALSE(split(Shape::events, R"({"a":)", 2).at_boundary);
  EXPECT_FALSE(split(Shape::list, R"({"items":[{}])", 2).at_boundary);
}

}  // namespace
}  // namespace penstock::kube
