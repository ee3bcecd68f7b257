// One address of a worker: connects, says HELLO, learns the model card, fetches its blobs, then feeds the fleet and the
// proxy with what the worker says. Connects again, with growing pauses, until it is stopped. The worker counts as lost
// when the connection ends or nothing comes for `silence_max`, although it is asked.
// Owner: WorkerPool. Thread: the router's I/O thread. Bounds: FrameConnection's queue; one blob at a time per model.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/async/frame_connection.hpp"
#include "common/async/tls.hpp"
#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"
#include "common/protocol/messages.hpp"
#include "common/time/clock.hpp"
#include "common/time/random.hpp"
#include "router/backend/served_model.hpp"
#include "router/backend/worker_target.hpp"

namespace penstock::router {

/// Who is told what workers say about requests.
class BackendEvents {
 public:
  virtual void on_step(InstanceId worker, protocol::Step&& step) = 0;
  virtual void on_request_error(InstanceId worker, const protocol::RequestError& error) = 0;
  virtual void on_transfer_status(InstanceId worker, const protocol::TransferStatus& status) = 0;
  virtual void on_worker_lost(InstanceId worker) = 0;
  /// A worker of that model may have room now.
  virtual void on_capacity(ServedModel& model) = 0;

 protected:
  ~BackendEvents() = default;
};

/// Where messages for workers go.
class WorkerSender {
 public:
  virtual bool send(InstanceId instance, const protocol::RouterMessage& message) = 0;
  virtual bool send(WorkerRef worker, const ServedModel& model, const protocol::RouterMessage& message) = 0;

 protected:
  ~WorkerSender() = default;
};

struct BackendProbe {
  metrics::Gauge workers_connected;
  metrics::Counter connects_total;
  metrics::Counter connect_failures_total;
  metrics::Counter workers_lost_total;
  metrics::Counter workers_refused_total;
  metrics::Counter frames_received_total;
  metrics::Counter protocol_errors_total;
};
BackendProbe make_backend_probe(metrics::Registry& registry);

struct BackendSettings {
  std::string router_id;
  async::TlsContextPtr tls;  // null: plain
  Duration connect_timeout = std::chrono::seconds(5);
  Duration welcome_timeout = std::chrono::seconds(10);
  Duration text_timeout = std::chrono::seconds(20);  // for the tokenizer and the template; then another worker is asked
  Duration ping_interval = std::chrono::seconds(2);
  Duration suspect_after = std::chrono::seconds(4);
  Duration silence_max = std::chrono::seconds(6);
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(5);
};

/// What all connections of a pool share; the objects outlive them.
struct BackendContext {
  ModelRegistry& registry;
  BackendEvents& events;
  boost::asio::thread_pool& workshop;  // builds tokenizers
  const Clock& clock;
  const BackendSettings& settings;
  log::Logger logger;
  BackendProbe probe;
  Random& random;
};

class WorkerConnection {
 public:
  WorkerConnection(BackendContext& context, WorkerTarget target);

  /// The same address, with what has changed about it.
  void set_target(const WorkerTarget& target);
  boost::asio::awaitable<void> run();
  bool send(const protocol::RouterMessage& message);

  const std::string& address() const { return target_.address; }
  /// Set while the worker is welcomed.
  std::optional<InstanceId> instance() const { return instance_; }
  WorkerRef ref() const { return ref_; }
  ServedModel* model() const { return model_; }
  /// Why there is no connection, for /readyz.
  const std::string& problem() const { return problem_; }

 private:
  struct BlobFetch {
    std::string digest;
    std::string bytes;
    std::uint64_t total_bytes = 0;
    bool is_complete = false;
  };

  boost::asio::awaitable<Result<void>> session(async::Stream stream);
  boost::asio::awaitable<Result<protocol::Welcome>> greet();
  boost::asio::awaitable<Result<void>> serve();
  Result<void> enter(const protocol::Welcome& welcome);
  void leave();
  void apply_target();
  void begin_fetch();
  Result<void> handle(protocol::WorkerMessage&& message);
  Result<void> take_blob(protocol::Blob& blob);
  boost::asio::awaitable<void> build_text();
  void ask_snapshot(SnapshotNeed need);
  bool is_text_wanted() const;
  bool has_blobs() const;

  BackendContext& context_;
  WorkerTarget target_;
  std::unique_ptr<async::FrameConnection> connection_;
  std::optional<InstanceId> instance_;
  protocol::ModelCard card_;
  ServedModel* model_ = nullptr;
  WorkerRef ref_;
  std::string problem_ = "not connected yet";
  std::optional<BlobFetch> tokenizer_, chat_template_;
  TimePoint last_frame_{}, last_ping_{};
  bool was_welcomed_ = false;
  bool is_suspect_ = false;
  bool is_refused_ = false;
  bool is_fetching_ = false;  // the model's text, from here
};

}  // namespace penstock::router
