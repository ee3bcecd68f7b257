// Figures out of a /metrics page.
#include <gtest/gtest.h>

#include "operator/core/metrics_text.hpp"

namespace penstock::ctl {
namespace {

MetricsReading read(std::string_view page) {
  MetricsReading reading;
  add_page(reading, page, "penstock_");
  return reading;
}

TEST(MetricsText, SeriesOfANameAddUp) {
  const auto reading = read(
      "# HELP penstock_tokens_total Tokens.\n# TYPE penstock_tokens_total counter\n"
      "penstock_tokens_total{kind=\"a\"} 3\npenstock_tokens_total{kind=\"b\"} 4.5 1700000000\nother_total 9\n");
  EXPECT_EQ(reading.sums.size(), 1u);
  EXPECT_DOUBLE_EQ(reading.sums.at("penstock_tokens_total"), 7.5);
}

TEST(MetricsText, GainIsNothingAfterARestart) {
  EXPECT_DOUBLE_EQ(*gained(read("penstock_a 3\n"), read("penstock_a 10\n"), "penstock_a"), 7);
  EXPECT_FALSE(gained(read("penstock_a 10\n"), read("penstock_a 3\n"), "penstock_a"));
  EXPECT_FALSE(gained(read(""), read("penstock_a 3\n"), "penstock_a"));
}

TEST(MetricsText, QuantileIsOfWhatWasGained) {
  const auto before =
      read("penstock_s_bucket{le=\"0.1\"} 100\npenstock_s_bucket{le=\"1\"} 100\npenstock_s_bucket{le=\"+Inf\"} 100\n");
  const auto after =
      read("penstock_s_bucket{le=\"0.1\"} 100\npenstock_s_bucket{le=\"1\"} 110\npenstock_s_bucket{le=\"+Inf\"} 110\n");
  EXPECT_NEAR(*quantile_gained(before, after, "penstock_s", 0.5), 0.55, 1e-9);
  EXPECT_NEAR(*quantile_gained(before, after, "penstock_s", 1), 1, 1e-9);
  EXPECT_FALSE(quantile_gained(after, after, "penstock_s", 0.5));
  const auto beyond =
      read("penstock_s_bucket{le=\"0.1\"} 100\npenstock_s_bucket{le=\"1\"} 100\npenstock_s_bucket{le=\"+Inf\"} 104\n");
  EXPECT_NEAR(*quantile_gained(before, beyond, "penstock_s", 0.5), 1, 1e-9);
}

TEST(MetricsText, WhatIsNoSampleIsPassedOver) {
  const auto reading =
      read("penstock_a\npenstock_b{\npenstock_c{le=\"x\"} y\npenstock_d nan\npenstock_e_bucket{} 3\npenstock_f 1");
  EXPECT_EQ(reading.sums.size(), 1u);
  EXPECT_TRUE(reading.buckets.empty());
}

}  // namespace
}  // namespace penstock::ctl
