#include "operator/core/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <utility>
#include <vector>

#include "common/json/json.hpp"
#include "common/time/random.hpp"

namespace penstock::ctl {
namespace {

boost::json::value parse(std::string_view text) {
  return json::parse(text).value();
}
std::string hash(std::string_view text) {
  return canonical_hash(parse(text));
}

constexpr std::string_view role = R"({
  "name": "decode", "type": "Decode", "group": {"size": 2},
  "template": {"spec": {
    "containers": [
      {"name": "worker", "image": "w:1", "args": ["--b", "--a"], "ports": [{"containerPort": 7000}, {"containerPort": 9180}],
       "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
       "volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a"}]},
      {"name": "agent", "image": "a:1"}],
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}}})";

/// The same value with every object's keys and every list with map semantics in another order.
boost::json::value shuffled(const boost::json::value& value, Random& random, std::string_view field = {}) {
  if (const auto* object = value.if_object()) {
    std::vector<std::pair<std::string, boost::json::value>> entries;
    for (const auto& entry : *object) {
      entries.emplace_back(std::string(entry.key()), shuffled(entry.value(), random, entry.key()));
    }
    for (std::size_t i = entries.size(); i > 1; --i) std::swap(entries[i - 1], entries[random.below(i)]);
    boost::json::object out;
    for (auto& [key, item] : entries) out[key] = std::move(item);
    return out;
  }
  if (const auto* list = value.if_array()) {
    boost::json::array out;
    for (const auto& item : *list) out.push_back(shuffled(item, random));
    const bool is_map =
        field == "containers" || field == "ports" || field == "env" || field == "volumes" || field == "volumeMounts";
    for (std::size_t i = out.size(); is_map && i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
    return out;
  }
  return value;
}

TEST(Hash, OrderOfKeysAndOfMapListsDoesNotMatter) {
  Random random(11);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(canonical_hash(shuffled(parse(role), random)), hash(role));
}

TEST(Hash, IsTheSameForEverAndEverywhere) {
  // A change of this value rolls every fleet at an upgrade: a new format gets a new prefix instead.
  EXPECT_EQ(hash(R"({"b":[1,2],"a":{"y":true,"x":"text"}})"),
            "h1:ff893ef6f3d49d24a134cb133ea028c66a28a1c70c298f9b93c152756b4f704c");
}

TEST(Hash, OrderOfArgumentsMatters) {
  EXPECT_NE(hash(R"({"args":["a","b"]})"), hash(R"({"args":["b","a"]})"));
}

TEST(Hash, OrderOfVariablesMattersOnlyWhenOneRefersToAnother) {
  EXPECT_EQ(hash(R"({"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]})"),
            hash(R"({"env":[{"name":"B","value":"2"},{"name":"A","value":"1"}]})"));
  EXPECT_NE(hash(R"j({"env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)"}]})j"),
            hash(R"j({"env":[{"name":"B","value":"$(A)"},{"name":"A","value":"1"}]})j"));
}

TEST(Hash, NullsAndWholeDoublesAreNoChange) {
  EXPECT_EQ(hash(R"({"a":1,"b":null})"), hash(R"({"a":1.0})"));
  EXPECT_NE(hash(R"({"a":{}})"), hash(R"({})"));  // emptyDir: {} means something
}

TEST(Hash, EveryLeafCounts) {
  const std::string before = hash(role);
  std::string text(role);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"w:1", "w:2"},
                                                                                 {"\"--a\"", "\"--c\""},
                                                                                 {"7000", "7002"},
                                                                                 {"\"size\": 2", "\"size\": 3"},
                                                                                 {"\"/a\"", "\"/c\""}}) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_NE(hash(changed), before) << from;
  }
}

TEST(Hash, KnowsItsFormat) {
  EXPECT_TRUE(is_known_format(hash("{}")));
  EXPECT_FALSE(is_known_format("h2:00"));
  EXPECT_EQ(short_hash("h1:0123456789abcdef"), "0123456789");
}

}  // namespace
}  // namespace penstock::ctl
