#include "common/async/frame_connection.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/async/deadline.hpp"

namespace penstock::async {
namespace {

using Code = boost::system::error_code;
constexpr std::size_t write_bytes_max = 256 << 10;  // in one call, so that the stall deadline is about progress

}  // namespace

struct FrameConnection::State : std::enable_shared_from_this<State> {
  State(Stream stream_, FrameLimits limits_)
      : stream(std::move(stream_)),
        limits(limits_),
        joiner(limits_.message_bytes_max),
        drained(stream.executor()),
        peer(stream.peer_address()) {
    drained.expires_at(TimePoint::max());
  }

  void close() {
    open = false;
    stream.close();
    queue.clear();
    drained.cancel();
  }

  /// Runs while there is something to write. Starts in a later turn of the executor, so that frames sent in one turn
  /// leave in one system call.
  static asio::awaitable<void> write_loop(std::shared_ptr<State> state) {
    co_await asio::post(state->stream.executor(), asio::use_awaitable);
    while (state->open && !state->queue.empty()) {
      std::swap(state->in_flight, state->queue);
      state->written = 0;
      while (state->open && state->written < state->in_flight.size()) {
        const std::size_t size = std::min(write_bytes_max, state->in_flight.size() - state->written);
        const asio::const_buffer piece(state->in_flight.data() + state->written, size);
        const IoResult result = co_await state->stream.write({&piece, 1}, state->limits.write_stall_max);
        state->written += result.bytes;
        if (result.error) state->close();
        state->drained.cancel();
      }
      state->in_flight.clear();
      state->written = 0;
      if (state->in_flight.capacity() > write_bytes_max) std::string().swap(state->in_flight);
    }
    state->writing = false;  // here, not at completion: a send() in between must start a new loop
  }

  std::size_t queued() const { return queue.size() + in_flight.size() - written; }

  Stream stream;
  FrameLimits limits;
  FrameJoiner joiner;
  std::string queue;      // not yet taken by the write loop
  std::string in_flight;  // being written
  std::size_t written = 0;
  bool writing = false;
  bool open = true;
  asio::steady_timer drained;  // cancelled whenever something has been written
  std::string peer;
};

FrameConnection::FrameConnection(Stream stream, FrameLimits limits)
    : state_(std::make_shared<State>(std::move(stream), limits)) {}
FrameConnection::~FrameConnection() {
  state_->close();
}

asio::awaitable<Result<Frame>> FrameConnection::read(Duration timeout) {
  const std::shared_ptr<State> state = state_;
  const auto deadline = SteadyClock().now() + timeout;
  Frame frame;
  while (true) {
    if (!state->open) co_return make_error(ErrorCode::unavailable, "the connection to " + state->peer + " is closed");
    const Result<std::size_t> taken = take_frame(state->stream.input(), state->limits.frame_bytes_max, frame);
    if (!taken) {
      state->close();
      co_return taken.error();
    }
    if (*taken > 0) {
      state->stream.consume(*taken);
      const Result<bool> whole = state->joiner.add(frame);
      if (whole && *whole) co_return frame;
      if (whole) continue;
      state->close();
      co_return whole.error();
    }
    const Duration left = deadline - SteadyClock().now();
    if (left <= Duration::zero()) co_return make_error(ErrorCode::deadline_exceeded, "no frame from " + state->peer);
    const Code code = co_await state->stream.fill(left, state->limits.frame_bytes_max + frame_header_bytes);
    if (!code || code == asio::error::timed_out) continue;
    if (code == asio::error::operation_aborted && state->open) {
      co_return make_error(ErrorCode::aborted, "the wait for a frame was cancelled");
    }
    const bool is_cut = state->joiner.is_within_message() || !state->stream.input().empty();
    const bool within_frame = is_cut && code == asio::error::eof;
    state->close();
    if (within_frame)
      co_return make_error(ErrorCode::data_loss, "the connection to " + state->peer + " ended within a frame");
    co_return to_error(code, "connection to " + state->peer);
  }
}

SendResult FrameConnection::send(std::uint16_t type, std::string_view body, std::uint16_t flags) {
  State& state = *state_;
  if (!state.open) return SendResult::closed;
  const FrameLimits& limits = state.limits;
  if (body.size() > std::max(limits.frame_bytes_max, limits.message_bytes_max)) return SendResult::too_large;
  const std::size_t frames = 1 + body.size() / limits.frame_bytes_max;
  if (state.queued() + frames * frame_header_bytes + body.size() > limits.queue_bytes_max) return SendResult::full;
  append_message(state.queue, type, flags, body, limits.frame_bytes_max);
  if (!std::exchange(state.writing, true)) {
    asio::co_spawn(state.stream.executor(), State::write_loop(state_),
                   [owner = state_](const std::exception_ptr& failure) {
                     if (failure) owner->close();
                   });
  }
  return SendResult::queued;
}

std::size_t FrameConnection::queued_bytes() const {
  return state_->queued();
}

asio::awaitable<Result<void>> FrameConnection::writable(std::size_t queued_bytes_max, Duration timeout) {
  const std::shared_ptr<State> state = state_;
  const auto deadline = SteadyClock().now() + timeout;
  while (state->open && state->queued() > queued_bytes_max) {
    if (SteadyClock().now() >= deadline) {
      co_return make_error(ErrorCode::deadline_exceeded, "the connection to " + state->peer + " takes no more data");
    }
    asio::steady_timer& drained = state->drained;
    drained.expires_at(deadline);
    co_await drained.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (!state->open) co_return make_error(ErrorCode::unavailable, "the connection to " + state->peer + " is closed");
  co_return Result<void>();
}

asio::awaitable<Result<void>> FrameConnection::flush(Duration timeout) {
  return writable(0, timeout);
}

void FrameConnection::close() {
  state_->close();
}
bool FrameConnection::is_open() const {
  return state_->open;
}
const std::string& FrameConnection::peer_address() const {
  return state_->peer;
}

}  // namespace penstock::async
