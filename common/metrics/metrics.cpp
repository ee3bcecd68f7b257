#include "common/metrics/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>

#include "common/metrics/process.hpp"

namespace penstock::metrics {

void Counter::increment(double by) const {
  if (counter_ != nullptr) counter_->Increment(by);
}
double Counter::value() const {
  return counter_ == nullptr ? 0 : counter_->Value();
}

void Gauge::set(double value) const {
  if (gauge_ != nullptr) gauge_->Set(value);
}
void Gauge::add(double by) const {
  if (gauge_ != nullptr) gauge_->Increment(by);
}
double Gauge::value() const {
  return gauge_ == nullptr ? 0 : gauge_->Value();
}

void Histogram::observe(double value) const {
  if (histogram_ != nullptr) histogram_->Observe(value);
}
void Histogram::observe(Duration duration) const {
  observe(std::chrono::duration<double>(duration).count());
}
std::uint64_t Histogram::count() const {
  return histogram_ == nullptr ? 0 : histogram_->Collect().histogram.sample_count;
}
double Histogram::sum() const {
  return histogram_ == nullptr ? 0 : histogram_->Collect().histogram.sample_sum;
}

Buckets latency_buckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1,
          1.5,   2,     3,     5,    7.5,  10,   15,  20,  30,   45,  60};
}
Buckets decision_buckets() {
  return {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 3.5e-5, 5e-5, 7.5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 1e-1};
}
namespace {
Buckets powers(double first, double factor, double last) {
  Buckets bounds;
  for (double bound = first; bound <= last; bound *= factor) bounds.push_back(bound);
  return bounds;
}
}  // namespace
Buckets byte_buckets() {
  return powers(256, 4, 68719476736.0);
}
Buckets token_buckets() {
  return powers(1, 4, 1048576);
}
Buckets count_buckets() {
  return powers(1, 2, 1024);
}

struct Registry::Impl {
  prometheus::Registry registry;
  std::mutex mutex;
  std::vector<std::function<void()>> refreshers;
};

Registry::Registry() : impl_(std::make_unique<Impl>()) {}
Registry::~Registry() = default;

Counter Registry::counter(const std::string& name, const std::string& help, const Labels& labels) {
  return Counter(&prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry).Add(labels));
}
Gauge Registry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  return Gauge(&prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry).Add(labels));
}
Histogram Registry::histogram(const std::string& name, const std::string& help, const Buckets& buckets,
                              const Labels& labels) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry);
  return Histogram(&family.Add(labels, buckets));
}

void Registry::on_expose(std::function<void()> refresh) {
  std::lock_guard lock(impl_->mutex);
  impl_->refreshers.push_back(std::move(refresh));
}

void Registry::add_process_metrics() {
  Gauge cpu = gauge("process_cpu_seconds_total", "User and system CPU time of this process in seconds.");
  Gauge memory = gauge("process_resident_memory_bytes", "Resident memory of this process in bytes.");
  Gauge files = gauge("process_open_fds", "Open file descriptors of this process.");
  Gauge threads = gauge("process_threads", "Threads of this process.");
  on_expose([=] {
    const ProcessUse use = read_process_use();
    cpu.set(use.cpu_seconds);
    memory.set(use.resident_bytes);
    files.set(use.open_files);
    threads.set(use.threads);
  });
}

std::string Registry::expose() const {
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& refresh : impl_->refreshers) refresh();
  }
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace penstock::metrics
