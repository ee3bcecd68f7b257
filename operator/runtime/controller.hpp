// Runs the reconciles of one kind of object: takes keys from a WorkQueue, waits behind the Expectations barrier, asks
// the pure reconcile what to write, and writes it in order, stopping at the first failure. One key is worked on by one
// worker at a time; several keys by several workers. Writes only while this process leads. Thread: one executor that
// runs one thing at a time. Bounded by the number of keys.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/kube/model/key.hpp"
#include "common/kube/model/status.hpp"
#include "common/kube/model/write.hpp"
#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"
#include "common/time/clock.hpp"
#include "operator/reconcilers/reconcile.hpp"
#include "operator/runtime/expectations.hpp"
#include "operator/runtime/work_queue.hpp"

namespace penstock::ctl {

/// Who carries out writes: the API client, or a test.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual boost::asio::awaitable<kube::ApiResult<json::Value>> write(const kube::Write& write) = 0;
  /// The newest version of a type that the server has, asked past all caches: after a write without an answer a
  /// reconcile must see at least this. Nothing if there is no answer to that either.
  virtual boost::asio::awaitable<std::optional<std::uint64_t>> newest_version(const kube::ResourceType& type,
                                                                              const std::string& namespace_) = 0;
  /// Asked before each write: a process that has lost its lease must not write.
  virtual bool may_write() const = 0;
};

/// Series `penstock_operator_*{controller=NAME}`.
struct ControllerProbe {
  metrics::Counter reconciles, failures, conflicts, writes;
  metrics::Histogram seconds;
  metrics::Gauge queued, oldest_seconds;
};
ControllerProbe make_controller_probe(metrics::Registry& registry, const std::string& controller);

struct ControllerOptions {
  std::string name;  // "service", for logs and metrics
  unsigned workers = 8;
  Duration barrier_poll = std::chrono::milliseconds(20);  // how soon a key behind the barrier is looked at again
  Duration rest{};  // how long pod events wait after a look at their key, so that a burst of them is one look
  std::uint64_t seed = 1;
};

class Controller {
 public:
  /// Pure: reads the caches, returns what to do. `last_failure` is that of the key's previous reconcile, if it failed.
  using Reconcile = std::function<Outcome(const kube::Key& key, const std::optional<WriteFailure>& last_failure)>;
  /// The uid of the object behind a key, "" if there is none: what expectations are kept by.
  using UidOf = std::function<std::string(const kube::Key& key)>;

  Controller(boost::asio::any_io_executor executor, ControllerOptions options, Reconcile reconcile, UidOf uid_of,
             Writer& writer, const CacheView& caches, const Clock& clock, ControllerProbe probe, log::Logger logger);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  void add(const kube::Key& key, Priority priority);
  void start();
  /// Takes no more keys; what is being worked on may go on for the grace.
  boost::asio::awaitable<void> stop(Duration grace);
  /// Nothing waits and nothing is being worked on.
  bool is_idle() const;
  void update_gauges();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::ctl
