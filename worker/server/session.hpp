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
  void send_step(protocol::Step step);
  void send_error(protocol::RequestError error);
  void send_status(protocol::TransferStatus status);
  bool welcomed() const { return welcomed_; }
  std::uint64_t id() const { return id_; }
  async::FrameConnection& connection() { return connection_; }

 private:
  Result<void> handle(protocol::RouterMessage message);
  Result<void> handle(const protocol::Hello& hello);
  enum class Part : std::uint8_t { whole, prefill };
  /// Takes a Generate, Prefill or Expect, or answers why not.
  template <class Message>
  void accept(Message message, Part part);
  void forget(RequestId request);
  void send_blob(const std::string& digest);
  void abort_all();

  std::uint64_t id_;
  async::FrameConnection connection_;
  SessionHost& host_;
  log::Logger logger_;
  struct Living {
    std::uint32_t choices_unfinished = 0;
    Part part = Part::whole;  // a prefill ends here with its transfer, not with its choices
  };
  std::unordered_map<RequestId, Living> requests_;
  std::uint64_t requests_seen_ = 0;
  bool welcomed_ = false;
};

}  // namespace penstock::worker
