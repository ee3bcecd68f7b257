#include "common/metrics/metrics.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::metrics {
namespace {

TEST(Metrics, SeriesExistAtZero) {
  Registry registry;
  registry.counter("penstock_requests_total", "Requests.", {{"status", "200"}});
  EXPECT_NE(registry.expose().find("penstock_requests_total{status=\"200\"} 0\n"), std::string::npos);
  EXPECT_NE(registry.expose().find("# TYPE penstock_requests_total counter\n"), std::string::npos);
}

TEST(Metrics, TheSameNameAndLabelsGiveTheSameSeries) {
  Registry registry;
  Counter first = registry.counter("penstock_a_total", "A.", {{"k", "v"}});
  Counter again = registry.counter("penstock_a_total", "A.", {{"k", "v"}});
  Counter other = registry.counter("penstock_a_total", "A.", {{"k", "w"}});
  first.increment();
  again.increment(2);
  EXPECT_EQ(first.value(), 3);
  EXPECT_EQ(other.value(), 0);
}

TEST(Metrics, HistogramCountsDurationsInSeconds) {
  Registry registry;
  Histogram wait = registry.histogram("penstock_wait_seconds", "Wait.", latency_buckets());
  wait.observe(std::chrono::milliseconds(3));
  wait.observe(2.0);
  EXPECT_EQ(wait.count(), 2u);
  EXPECT_DOUBLE_EQ(wait.sum(), 2.003);
  EXPECT_NE(registry.expose().find("penstock_wait_seconds_bucket{le=\"0.005\"} 1\n"), std::string::npos);
}

TEST(Metrics, BucketsRise) {
  for (const Buckets& buckets :
       {latency_buckets(), decision_buckets(), byte_buckets(), token_buckets(), count_buckets()}) {
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end()));
    EXPECT_EQ(std::adjacent_find(buckets.begin(), buckets.end()), buckets.end());
  }
  EXPECT_EQ(latency_buckets().back(), 60);
  EXPECT_EQ(token_buckets().back(), 1048576);
}

TEST(Metrics, RefreshesBeforeExposing) {
  Registry registry;
  Gauge depth = registry.gauge("penstock_depth", "Depth.");
  registry.on_expose([depth] { depth.set(42); });
  EXPECT_NE(registry.expose().find("penstock_depth 42\n"), std::string::npos);
}

TEST(Metrics, ProcessMetricsAreReal) {
  Registry registry;
  registry.add_process_metrics();
  registry.expose();
  EXPECT_GT(registry.gauge("process_resident_memory_bytes", "").value(), 1e6);
  EXPECT_GE(registry.gauge("process_open_fds", "").value(), 3);
  EXPECT_GE(registry.gauge("process_threads", "").value(), 1);
}

TEST(Metrics, EmptyHandlesDoNothing) {
  Counter().increment();
  Gauge().set(1);
  Histogram().observe(1.0);
  EXPECT_EQ(Counter().value(), 0);
}

}  // namespace
}  // namespace penstock::metrics
