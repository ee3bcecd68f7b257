// Quantities: value, rounding, text, limits.
#include "common/kube/model/quantity.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::kube {
namespace {

std::int64_t units(std::string_view text) {
  const auto parsed = Quantity::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? parsed->units() : -1;
}

TEST(Quantity, ReadsEverySuffix) {
  EXPECT_EQ(units("3"), 3);
  EXPECT_EQ(units("8Gi"), 8ll << 30);
  EXPECT_EQ(units("1.5Ki"), 1536);
  EXPECT_EQ(units("2k"), 2'000);
  EXPECT_EQ(units("1e3"), 1'000);
}

TEST(Quantity, RoundsUp) {
  EXPECT_EQ(units("100m"), 1);
  EXPECT_EQ(Quantity::parse("100m")->milliunits(), 100);
  EXPECT_EQ(Quantity::parse("1500u")->milliunits(), 2);
  EXPECT_EQ(Quantity::parse("0.0000000001")->to_string(), "1n");
  EXPECT_EQ(units("-1.5"), -1);
}

TEST(Quantity, ComparesByValue) {
  EXPECT_EQ(*Quantity::parse("1Gi"), *Quantity::parse("1073741824"));
  EXPECT_LT(*Quantity::parse("1G"), *Quantity::parse("1Gi"));
  EXPECT_EQ(*Quantity::parse("1E2"), *Quantity::parse("100"));
}

TEST(Quantity, PrintsTheShortestForm) {
  for (const char* text : {"8Gi", "500m", "0", "1k", "1536Mi", "-2", "7"}) {
    EXPECT_EQ(Quantity::parse(text)->to_string(), text);
  }
  EXPECT_EQ(Quantity::parse("1024Ki")->to_string(), "1Mi");
  EXPECT_EQ(Quantity::parse("1000m")->to_string(), "1");
  EXPECT_EQ(Quantity::parse("0.5Gi")->to_string(), "512Mi");
}

TEST(Quantity, AddsAndSaturates) {
  EXPECT_EQ((*Quantity::parse("1Gi") + *Quantity::parse("1Gi")).to_string(), "2Gi");
  EXPECT_EQ((*Quantity::parse("1") - *Quantity::parse("500m")).to_string(), "500m");
  EXPECT_EQ((*Quantity::parse("2Gi") * 3).to_string(), "6Gi");
  const Quantity most = Quantity::of(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ((most + most).units(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ((most * -5).units(), -std::numeric_limits<std::int64_t>::max());
}

TEST(Quantity, RefusesWhatIsNone) {
  for (const char* text : {"", "-", ".", "Gi", "1 Gi", "1gi", "1e", "1e99", "99999999999999999999", "1.2.3", "0x1",
                           "9223372036854775808", "1Ei0", "12E"}) {
    EXPECT_FALSE(Quantity::parse(text)) << text;
  }
}

}  // namespace
}  // namespace penstock::kube
