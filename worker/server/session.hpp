// One router's connection: its frames to engine commands, the engine's results to frames. Private to worker/server.
// Thread: the server's executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/async/frame_connection.hpp"
#include "common/log/logger.hpp"
#include "common/protocol/codec.hpp"
#include "worker/server/control_server.hpp"

namespace penstock::worker {

/// What a session needs from its server.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual const WorkerIdentity& identity() const = 0;
  virtual bool post(EngineCommand command) = 0;
  virtual bool is_draining() const = 0;
  virtual void request_drain() = 0;
  /// False if another session already has a request of that id.
  virtual bool claim(RequestId request, std::uint64_t session) = 0;
  virtual void forget(RequestId request) = 0;
};

class Session {
 public:
  Session(std::uint64_t id, async::Stream stream, SessionHost& host, log::Logger logger);

  /// HELLO, then frames until the connection ends; then every request of this session is aborted.
  boost::asio::awaitable<void> run(Duration hello_deadline, Duration idle_deadline);

  void send(const protocol::WorkerMessage& message);
  void send_load(protocol::Load load);
  /// Tells the router, and the log.
  void send_error(const protocol::RequestError& error);
  void send_error(const protocol::RequestError& error, const std::string& trace);
  /// The engine's last word about an attempt.
  void end_request(RequestId request, std::uint32_t attempt);
  bool welcomed() const { return welcomed_; }
  std::uint64_t id() const { return id_; }
  async::FrameConnection& connection() { return connection_; }

 private:
  // One overload a message; an error ends the connection.
  Result<void> handle(protocol::Hello& hello);
  Result<void> handle(protocol::Generate& generate) { return accept(std::move(generate)); }
  Result<void> handle(protocol::Prefill& prefill) { return accept(std::move(prefill)); }
  Result<void> handle(protocol::Expect& expect) { return accept(std::move(expect)); }
  Result<void> handle(protocol::Reoffer& reoffer);
  Result<void> handle(protocol::Release& release);
  Result<void> handle(protocol::Abort& abort);
  Result<void> handle(protocol::SnapshotRequest&);
  Result<void> handle(protocol::GetBlob& blob);
  Result<void> handle(protocol::Drain&);
  Result<void> handle(protocol::Ping& ping);
  Result<void> dispatch(protocol::RouterMessage message);
  /// Takes a Generate, Prefill or Expect, or answers why not.
  template <class Message>
  Result<void> accept(Message message);
  void forget(RequestId request);
  void send_blob(const std::string& digest);
  void abort_all();

  std::uint64_t id_;
  async::FrameConnection connection_;
  SessionHost& host_;
  log::Logger logger_;
  struct Living {
    std::uint32_t attempt = 0;  // the newest
    std::string trace;
  };
  std::unordered_map<RequestId, Living> requests_;
  std::uint64_t requests_seen_ = 0;
  bool welcomed_ = false;
};

}  // namespace penstock::worker
