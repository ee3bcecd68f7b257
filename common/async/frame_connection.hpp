// A connection that carries frames (frame.hpp). Used between router and worker and between workers, over plain TCP or
// TLS. All calls on the connection's executor.
// Bounds: a frame's body by frame_bytes_max, a message over several frames by message_bytes_max, the write queue by
// queue_bytes_max. Sending never waits: it queues or says that the queue is full. Frames queued while a write is under
// way leave together in one system call.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/async/frame.hpp"
#include "common/async/stream.hpp"
#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::async {

struct FrameLimits {
  std::size_t frame_bytes_max = 1 << 20;                // body of one frame, either way
  std::size_t message_bytes_max = 16 << 20;             // of a body over several frames; 0: one frame each
  std::size_t queue_bytes_max = 32 << 20;               // waiting to be written
  Duration write_stall_max = std::chrono::seconds(30);  // a write that moves nothing for so long closes the connection
};

enum class SendResult : std::uint8_t {
  queued,
  full,       // nothing was queued: wait for writable(), or shed
  closed,     // the connection is gone
  too_large,  // the body exceeds frame_bytes_max and message_bytes_max
};

class FrameConnection {
 public:
  explicit FrameConnection(Stream stream, FrameLimits limits = {});
  /// Closes at once; what is queued is lost. Use flush() first to be sure.
  ~FrameConnection();
  FrameConnection(const FrameConnection&) = delete;
  FrameConnection& operator=(const FrameConnection&) = delete;

  /// The next message, as one frame. Errors: unavailable (closed by the peer or by close()), deadline_exceeded (nothing
  /// complete within `timeout`; the connection stays usable), data_loss (a frame over the limit, or the end within a
  /// frame; closes). One reader at a time.
  asio::awaitable<Result<Frame>> read(Duration timeout);

  SendResult send(std::uint16_t type, std::string_view body, std::uint16_t flags = 0);
  std::size_t queued_bytes() const;
  /// Waits until at most `queued_bytes_max` bytes are queued.
  asio::awaitable<Result<void>> writable(std::size_t queued_bytes_max, Duration timeout);
  /// Waits until all has been handed to the kernel.
  asio::awaitable<Result<void>> flush(Duration timeout);

  void close();
  bool is_open() const;
  const std::string& peer_address() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the write loop, which ends by itself after close()
};

}  // namespace penstock::async
