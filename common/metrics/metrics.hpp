// Metrics in Prometheus form. A program owns one Registry; modules ask it for handles at construction (their Probe
// struct), so that every series exists at zero. Handles are pointers: copy them freely; they live as long as the
// registry. Any thread. A default-constructed handle does nothing, for tests that don't look.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/clock.hpp"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace penstock::metrics {

using Labels = std::map<std::string, std::string>;
using Buckets = std::vector<double>;

class Counter {
 public:
  Counter() = default;
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  void increment(double by = 1) const;  // by >= 0
  double value() const;

 private:
  prometheus::Counter* counter_ = nullptr;
};

class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void set(double value) const;
  void add(double by) const;
  double value() const;

 private:
  prometheus::Gauge* gauge_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  void observe(double value) const;
  void observe(Duration duration) const;  // in seconds
  std::uint64_t count() const;
  double sum() const;

 private:
  prometheus::Histogram* histogram_ = nullptr;
};

/// Upper bounds. Latencies a person or client sees: 1 ms to 60 s.
Buckets latency_buckets();
/// Decisions and other work of microseconds: 1 µs to 100 ms.
Buckets decision_buckets();
/// 256 B to 64 GiB by fours.
Buckets byte_buckets();
/// 1 to 1,048,576 tokens by fours.
Buckets token_buckets();
/// 1 to 1,024 by twos: batch sizes, counts of blocks.
Buckets count_buckets();

class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// The same name and labels give the same series. A name used with two types is a broken invariant.
  Counter counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram histogram(const std::string& name, const std::string& help, const Buckets& buckets,
                      const Labels& labels = {});

  /// Called at the start of every expose(), on its thread, to refresh gauges that are read rather than kept.
  void on_expose(std::function<void()> refresh);
  /// process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_threads.
  void add_process_metrics();

  /// Text exposition format 0.0.4.
  std::string expose() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::metrics
