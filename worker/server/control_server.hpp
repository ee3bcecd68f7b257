// The control port of a worker: routers connect, say HELLO, then send requests and get steps, cache events and load.
// One session a router; a request belongs to the session it came by, and ends with it.
// Owner: worker/app. Thread: one I/O executor; the engine's results come through sink() from the engine thread.
// Bounds: sessions_max; each session's write queue by FrameLimits (a router that does not read is cut off, its requests
// aborted); requests by the engine.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/async/frame_connection.hpp"
#include "common/async/tls.hpp"
#include "common/base/result.hpp"
#include "common/log/logger.hpp"
#include "common/protocol/messages.hpp"
#include "worker/engine/engine.hpp"

namespace penstock::worker {

/// What the server says about this worker, fixed at start.
struct WorkerIdentity {
  protocol::Welcome welcome;                 // hash_probe is filled for each HELLO
  std::map<std::string, std::string> blobs;  // digest to bytes: tokenizer.json, chat template
  std::function<std::vector<BlockHash>(const std::vector<TokenId>&)> hash_probe;
};

struct ControlServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 7000;
  async::TlsContextPtr tls;  // null: plain
  std::uint32_t sessions_max = 64;
  Duration hello_deadline = std::chrono::seconds(5);
  Duration idle_deadline = std::chrono::seconds(30);  // routers ping every few seconds; silence ends the session
  std::size_t sink_queue_max = 1 << 16;
};

class ControlServer {
 public:
  ControlServer(boost::asio::any_io_executor executor, ControlServerOptions options, WorkerIdentity identity,
                std::function<void()> on_drain_request, log::Logger logger);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Give this to the engine; thread-safe. `on_drained` and `on_broken` are called on the I/O executor, `on_stuck` on
  /// the engine's watchdog.
  EngineSink& sink();
  void set_engine_events(std::function<void()> on_drained, std::function<void(const Error&)> on_broken,
                         std::function<void(const StuckStep&)> on_stuck);

  /// Binds and accepts. The engine must have been started. The error is one sentence. Returns the port.
  Result<std::uint16_t> start(Engine& engine);
  /// Tells every router that no new request is taken.
  void announce_drain();
  /// Says GOODBYE, flushes what is queued (bounded), closes.
  boost::asio::awaitable<void> stop(Duration flush_deadline);

  std::size_t session_count() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with sessions and posted events, which may end after this object
};

}  // namespace penstock::worker
