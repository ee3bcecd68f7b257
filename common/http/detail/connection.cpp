#include "common/http/detail/connection.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <charconv>

#include "common/async/deadline.hpp"
#include "common/base/check.hpp"
#include "common/base/id.hpp"
#include "common/http/detail/head_check.hpp"

namespace penstock::http::detail {
namespace {

using Code = boost::system::error_code;
constexpr auto body_grace = std::chrono::seconds(5);       // before the minimum rate counts
constexpr auto linger_time_max = std::chrono::seconds(3);  // for a client to read our last answer
constexpr std::size_t linger_bytes_max = 64 << 20;
constexpr std::size_t request_id_bytes_max = 128;
constexpr std::string_view chunk_end = "\r\n", last_chunk_text = "0\r\n\r\n";

asio::const_buffer buffer_of(std::string_view text) {
  return {text.data(), text.size()};
}

bool is_usable_id(std::string_view id) {
  if (id.empty() || id.size() > request_id_bytes_max) return false;
  for (char c : id) {
    if (c <= ' ' || c >= 0x7F) return false;
  }
  return true;
}

std::string choose_id(const Headers& headers) {
  const auto given = headers.find("x-request-id");
  return given && is_usable_id(*given) ? std::string(*given) : to_string(random_id<RequestId>());
}

/// Header values come from our own code; a line break in one would still split the answer, so it ends here.
bool is_clean(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerState> server, asio::ip::tcp::socket socket)
    : server_(std::move(server)),
      stream_(server_->options.tls ? async::Stream(std::move(socket), server_->options.tls, "")
                                   : async::Stream(std::move(socket))) {
  // The kernel holds back a writer above this many unsent bytes, and wakes it at half of them.
  const int unsent = static_cast<int>(server_->options.limits.stream_buffer_bytes_max);
  (void)setsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

asio::awaitable<void> Connection::session(std::shared_ptr<Connection> self) {
  Connection& c = *self;
  const ServerLimits& limits = c.server_->options.limits;
  if (co_await c.stream_.handshake(limits.header_deadline)) co_return;
  bool alive = true;
  while (alive) {
    RequestParser parser(limits);
    if (co_await c.receive(parser) == Received::closed) co_return;
    ++c.requests_;
    c.keep_alive_ = parser.keep_alive();
    c.http_1_0_ = parser.http_1_0();
    Request request = parser.take();
    request.peer_address = c.stream_.peer_address();
    request.encrypted = c.stream_.encrypted();
    request.id = choose_id(request.headers);
    co_await c.serve(std::move(request));
    if (c.unusable_ || c.client_gone_ || c.phase_ != Phase::done) co_return;  // the destructor closes
    alive = c.may_keep_alive();
  }
  co_await c.linger();
}

bool Connection::may_keep_alive() const {
  return keep_alive_ && !server_->draining && requests_ < server_->options.limits.requests_per_connection_max;
}

/// Reads one request. Refuses what is wrong; closes in silence what never began.
asio::awaitable<Connection::Received> Connection::receive(RequestParser& parser) {
  const ServerLimits& limits = server_->options.limits;
  idle_ = stream_.input().empty();
  if (idle_) {
    if (server_->draining) co_return Received::closed;
    if (co_await stream_.fill(requests_ == 0 ? limits.header_deadline : limits.keep_alive_idle))
      co_return Received::closed;
    idle_ = false;
  }
  const TimePoint deadline = SteadyClock().now() + limits.header_deadline;
  while (true) {
    std::size_t consumed = 0;
    const Progress progress = parser.feed(stream_.input(), consumed);
    stream_.consume(consumed);
    if (progress == Progress::complete) co_return Received::request;
    if (progress == Progress::head_done) break;
    if (progress == Progress::failed) {
      co_await refuse(parser.error());
      co_return Received::closed;
    }
    const Duration left = deadline - SteadyClock().now();
    Code code = asio::error::timed_out;
    if (left > Duration::zero()) code = co_await stream_.fill(left);
    if (!code) continue;
    if (code == asio::error::timed_out) co_await refuse(protocol_error(408, "the header did not arrive in time"));
    co_return Received::closed;
  }
  co_return co_await receive_body(parser);
}

asio::awaitable<Connection::Received> Connection::receive_body(RequestParser& parser) {
  const ServerLimits& limits = server_->options.limits;
  const TimePoint start = SteadyClock().now();
  if (parser.expects_continue() && stream_.input().empty()) {
    const asio::const_buffer interim = buffer_of("HTTP/1.1 100 Continue\r\n\r\n");
    if (!co_await put({&interim, 1})) co_return Received::closed;
  }
  while (true) {
    std::size_t consumed = 0;
    const Progress progress = parser.feed(stream_.input(), consumed);
    stream_.consume(consumed);
    if (progress == Progress::complete) co_return Received::request;
    if (progress == Progress::failed) {
      co_await refuse(parser.error());
      co_return Received::closed;
    }
    const Duration spent = SteadyClock().now() - start;
    const double rate_seconds = std::chrono::duration<double>(spent - body_grace).count();
    const bool too_slow =
        rate_seconds * static_cast<double>(limits.body_bytes_per_second_min) > static_cast<double>(parser.body_bytes());
    // Wakes at least once a second to look at the rate.
    const Duration left = std::min<Duration>(limits.body_deadline - spent, std::chrono::seconds(1));
    if (too_slow || left <= Duration::zero()) {
      co_await refuse(protocol_error(408, "the body did not arrive in time"));
      co_return Received::closed;
    }
    const Code code = co_await stream_.fill(left);
    if (code && code != asio::error::timed_out) co_return Received::closed;
  }
}

/// Answers a request that never reaches a handler; the connection ends.
asio::awaitable<void> Connection::refuse(ApiError error) {
  server_->probe.rejected_total.increment();
  server_->logger.debug("request refused",
                        {{"peer", stream_.peer_address()}, {"status", error.status}, {"reason", error.message}});
  phase_ = Phase::waiting;
  keep_alive_ = is_head_ = false;
  id_ = to_string(random_id<RequestId>());
  Response response = to_response(error);
  if (error.status == 405) response.headers.add("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
  if (co_await send(std::move(response))) co_await linger();
}

asio::awaitable<void> Connection::serve(Request request) {
  const ServerProbe& probe = server_->probe;
  phase_ = Phase::waiting;
  id_ = request.id;
  is_head_ = request.method == "HEAD";
  probe.requests_total.increment();
  probe.requests_active.add(1);
  stream_.watch(server_->options.limits.pipelined_bytes_max, [weak = weak_from_this()](const Code& code) {
    if (auto self = weak.lock()) self->client_went(code);
  });
  std::exception_ptr failure;
  try {
    co_await server_->handler(std::move(request), *this);
  } catch (...) {
    failure = std::current_exception();
  }
  stream_.unwatch();
  on_disconnect_ = nullptr;
  probe.requests_active.add(-1);
  if (client_gone_ || unusable_) co_return;
  if (failure) {
    std::string what = "unknown exception";
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {
    }
    server_->logger.error("handler failed", {{"request_id", id_}, {"detail", what}});
  }
  if (phase_ == Phase::waiting) {
    ApiError error;
    error.status = 500;
    error.message = "internal error";
    error.type = "server_error";
    error.code = "internal_error";
    co_await send(to_response(error));
  } else if (phase_ == Phase::streaming) {
    phase_ = Phase::failed;  // the handler left without end(): an abnormal end
  }
}

void Connection::client_went(const Code& code) {
  if (code == asio::error::eof && server_->options.half_close == HalfClose::keep_serving) return;
  if (phase_ == Phase::done || phase_ == Phase::failed || client_gone_) return;
  client_gone_ = true;
  server_->probe.disconnects_total.increment();
  if (auto callback = std::exchange(on_disconnect_, nullptr)) callback();
  signal.emit(asio::cancellation_type::terminal);
}

void Connection::close_if_idle() {
  if (idle_) stream_.close();
}

void Connection::abort() {
  client_gone_ = true;  // whatever is still to be sent has nowhere to go
  if (auto callback = std::exchange(on_disconnect_, nullptr)) callback();
  signal.emit(asio::cancellation_type::terminal);
  stream_.close();
}

/// Lets the client read our last bytes: a close with unread input would send a reset that may overtake them.
asio::awaitable<void> Connection::linger() {
  co_await stream_.shutdown_send();
  const TimePoint deadline = SteadyClock().now() + linger_time_max;
  std::size_t dropped = 0;
  while (dropped < linger_bytes_max) {
    dropped += stream_.input().size();
    stream_.consume(stream_.input().size());
    const Duration left = deadline - SteadyClock().now();
    if (left <= Duration::zero() || co_await stream_.fill(left)) co_return;
  }
}

std::string Connection::make_head(int status, const Headers& headers, std::optional<std::size_t> content_length) {
  std::string head;
  head.reserve(256);
  head += "HTTP/1.1 ";
  head += std::to_string(status);
  head += ' ';
  head += reason_phrase(status);
  head += chunk_end;
  const auto add = [&head](std::string_view name, std::string_view value) {
    if (!is_clean(name) || !is_clean(value)) return;
    head.append(name).append(": ").append(value).append(chunk_end);
  };
  for (const auto& [name, value] : headers) add(name, value);
  add("x-request-id", id_);
  add("date", server_->date());
  if (content_length && status != 204 && status != 304) add("content-length", std::to_string(*content_length));
  if (!content_length && chunked_) add("transfer-encoding", "chunked");
  if (!may_keep_alive()) {
    add("connection", "close");
  } else if (http_1_0_) {
    add("connection", "keep-alive");
  }
  head += chunk_end;
  return head;
}

asio::awaitable<Result<void>> Connection::put(std::span<const asio::const_buffer> buffers) {
  if (client_gone_ || unusable_) co_return make_error(ErrorCode::unavailable, "the client has gone");
  const async::IoResult result = co_await stream_.write(buffers, server_->options.limits.stream_stall_max);
  if (!result.error) co_return Result<void>();
  unusable_ = true;
  if (result.error == asio::error::timed_out) {
    server_->probe.stalls_total.increment();
    server_->logger.info("client stalled", {{"peer", stream_.peer_address()}, {"request_id", id_}});
    co_return make_error(ErrorCode::deadline_exceeded, "the client takes no data");
  }
  co_return async::to_error(result.error, "client " + stream_.peer_address());
}

asio::awaitable<Result<void>> Connection::send(Response response) {
  PENSTOCK_CHECK(phase_ == Phase::waiting, "an answer was already begun");
  std::string_view body = response.body;
  if (is_head_ || response.status == 204 || response.status == 304) body = {};
  const std::string head = make_head(response.status, response.headers, response.body.size());
  const std::array<asio::const_buffer, 2> buffers{buffer_of(head), buffer_of(body)};
  phase_ = Phase::done;
  co_return co_await put(buffers);
}

void Connection::begin_stream(int status, Headers headers) {
  PENSTOCK_CHECK(phase_ == Phase::waiting, "an answer was already begun");
  phase_ = Phase::streaming;
  chunked_ = !http_1_0_;
  if (http_1_0_) keep_alive_ = false;  // the end of the connection is the end of the body
  pending_head_ = make_head(status, headers, std::nullopt);
}

asio::awaitable<Result<void>> Connection::write(std::string_view chunk) {
  if (phase_ != Phase::streaming) co_return make_error(ErrorCode::aborted, "the answer has ended");
  const std::string head = std::exchange(pending_head_, {});
  std::array<char, 20> size_text;
  std::string_view size_line;
  if (chunked_ && !chunk.empty() && !is_head_) {
    char* end = std::to_chars(size_text.data(), size_text.data() + 16, chunk.size(), 16).ptr;
    *end++ = '\r';
    *end++ = '\n';
    size_line = {size_text.data(), end};
  }
  const std::array<asio::const_buffer, 4> buffers{buffer_of(head), buffer_of(size_line),
                                                  buffer_of(is_head_ ? "" : chunk),
                                                  buffer_of(size_line.empty() ? "" : chunk_end)};
  if (asio::buffer_size(buffers) == 0) co_return Result<void>();
  co_return co_await put(buffers);
}

asio::awaitable<Result<void>> Connection::end(std::string_view last_chunk) {
  if (phase_ != Phase::streaming) co_return make_error(ErrorCode::aborted, "the answer has ended");
  std::string bytes = std::exchange(pending_head_, {});
  if (!is_head_) {
    if (chunked_ && !last_chunk.empty()) {
      std::array<char, 16> size_text;
      bytes.append(size_text.data(), std::to_chars(size_text.begin(), size_text.end(), last_chunk.size(), 16).ptr);
      bytes.append(chunk_end).append(last_chunk).append(chunk_end);
    } else {
      bytes += last_chunk;
    }
    if (chunked_) bytes += last_chunk_text;
  }
  const asio::const_buffer buffer = buffer_of(bytes);
  auto result = co_await put({&buffer, 1});
  if (result) phase_ = Phase::done;
  co_return result;
}

}  // namespace penstock::http::detail
