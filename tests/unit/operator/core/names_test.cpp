#include "operator/core/names.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace penstock::ctl {
namespace {

TEST(Names, ShortNamesStayAsTheyAre) {
  EXPECT_EQ(bounded_name({"chat", "decode"}, 63), "chat-decode");
}

TEST(Names, LongNamesAreCutAndStayDifferent) {
  const std::string long_one(80, 'a');
  const std::string first = bounded_name({long_one, "x"}, 40), second = bounded_name({long_one, "y"}, 40);
  EXPECT_EQ(first.size(), 40u);
  EXPECT_NE(first, second);
}

TEST(Names, EveryPodNameIsADnsLabelOfAtMostSixtyThree) {
  const std::regex dns_label("[a-z0-9]([a-z0-9-]*[a-z0-9])?");
  Random random(7);
  const std::string letters = "abcxyz0-9";
  for (int i = 0; i < 5000; ++i) {
    std::string service = "s", role = "r";
    for (std::uint64_t n = random.below(63); n > 0; --n) service += letters[random.below(letters.size())];
    for (std::uint64_t n = random.below(20); n > 0; --n) role += letters[random.below(letters.size())];
    const std::string group = group_name(service + "s", role + "r", make_group_id(random));
    const std::string pod = pod_name(group, random.below(2'000'000'000), static_cast<std::uint32_t>(random.below(256)));
    ASSERT_LE(group.size(), group_name_max) << group;
    ASSERT_LE(pod.size(), pod_name_max) << pod;
    ASSERT_TRUE(std::regex_match(pod, dns_label)) << pod;
  }
}

TEST(Names, ACutNeverEndsInADoubledSeparator) {
  EXPECT_EQ(bounded_name({"aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbb"}, 20).find("--"), std::string::npos);
}

TEST(Names, GroupIdsDiffer) {
  Random random(3);
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(make_group_id(random));
  EXPECT_GE(ids.size(), 999u);
}

TEST(Names, DecimalsAreStrict) {
  EXPECT_EQ(parse_decimal("42"), 42u);
  for (const char* bad : {"", "-1", "4x", " 4", "99999999999999999999999"}) EXPECT_FALSE(parse_decimal(bad)) << bad;
}

}  // namespace
}  // namespace penstock::ctl
