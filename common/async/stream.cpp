#include "common/async/stream.hpp"

#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "common/async/deadline.hpp"
#include "common/async/tls_context.hpp"
#include "common/base/check.hpp"

namespace penstock::async {
namespace {

using asio::ip::tcp;
using Code = boost::system::error_code;
constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t read_bytes_min = 4 << 10;   // what an idle connection holds
constexpr std::size_t read_bytes_max = 64 << 10;  // reads grow up to this while they fill their room
constexpr std::size_t buffers_max = 4;

void set_option(int socket, int level, int name, int value) {
  // The result is unimportant: see apply().
  (void)setsockopt(socket, level, name, &value, sizeof value);
}

int seconds(Duration duration) {
  return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

std::string describe_peer(const tcp::socket& socket) {
  Code code;
  const tcp::endpoint peer = socket.remote_endpoint(code);
  if (code) return "unknown";
  const std::string host = peer.address().to_string();
  return (peer.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(peer.port());
}

/// Bytes read and not consumed, at [begin, end) of a buffer that is as large as the traffic needs.
struct InputBuffer {
  std::unique_ptr<char[]> bytes;
  std::size_t capacity = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t read_bytes = read_bytes_min;  // room that the next read should find

  std::size_t size() const { return end - begin; }
  std::string_view view() const { return {bytes.get() + begin, size()}; }

  void consume(std::size_t count) {
    PENSTOCK_CHECK(count <= size());
    begin += count;
    if (begin == end) begin = end = 0;
  }

  /// Room for the next read, so that at most `bytes_max` are buffered.
  asio::mutable_buffer prepare(std::size_t bytes_max) {
    if (size() == 0 && capacity > read_bytes) {
      replace(read_bytes);
    } else if (capacity - end < read_bytes) {
      // Doubled if what is there needs it, so that a long frame is not moved once a read.
      const std::size_t needed = size() + read_bytes;
      replace(needed <= capacity ? capacity : std::max(capacity * 2, needed));
    }
    return asio::buffer(bytes.get() + end, std::min(capacity - end, bytes_max - size()));
  }

  void add(std::size_t count) {
    const bool is_filled = count == capacity - end;
    end += count;
    read_bytes = is_filled ? std::min(read_bytes * 4, read_bytes_max) : read_bytes_min;
  }

 private:
  void replace(std::size_t larger) {
    if (larger == capacity) {
      std::memmove(bytes.get(), bytes.get() + begin, size());
    } else {
      auto fresh = std::make_unique_for_overwrite<char[]>(larger);
      if (size() > 0) std::memcpy(fresh.get(), bytes.get() + begin, size());
      bytes = std::move(fresh);
      capacity = larger;
    }
    end -= begin;
    begin = 0;
  }
};

}  // namespace

void apply(const SocketOptions& options, tcp::socket& socket) {
  const int handle = socket.native_handle();
  set_option(handle, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(handle, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(handle, IPPROTO_TCP, TCP_KEEPIDLE, seconds(options.keepalive_idle));
  set_option(handle, IPPROTO_TCP, TCP_KEEPINTVL, seconds(options.keepalive_interval));
  set_option(handle, IPPROTO_TCP, TCP_KEEPCNT, options.keepalive_count);
  set_option(handle, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds(options.user_timeout));
}

struct Stream::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(tcp::socket socket_) : socket(std::move(socket_)), wake(socket.get_executor()) {
    peer = describe_peer(socket);
    apply(SocketOptions{}, socket);  // accepted sockets too: no caller can forget it
    Code ignored;
    socket.non_blocking(true, ignored);
  }

  void start_read(std::size_t bytes_max) {
    if (reading || end_code || input.size() >= bytes_max) return;
    reading = true;
    auto on_read = [self = shared_from_this()](const Code& code, std::size_t count) { self->finish_read(code, count); };
    const asio::mutable_buffer room = input.prepare(bytes_max);
    if (tls) {
      tls->async_read_some(room, std::move(on_read));
    } else {
      socket.async_read_some(room, std::move(on_read));
    }
  }

  void finish_read(const Code& code, std::size_t count) {
    reading = false;
    input.add(count);
    if (code) end_code = code == asio::ssl::error::stream_truncated ? Code(asio::error::eof) : code;
    wake.cancel();
    if (!on_end) return;
    if (end_code) {
      std::exchange(on_end, nullptr)(end_code);
    } else {
      start_read(watch_bytes_max);
    }
  }

  void close() {
    Code ignored;
    tcp::socket& lowest = tls ? tls->next_layer() : socket;
    lowest.close(ignored);
    if (!end_code) end_code = asio::error::operation_aborted;
    on_end = nullptr;
    wake.cancel();
  }

  tcp::socket socket;  // moved into `tls` if there is one
  SslContextPtr ssl;   // what `tls` was made with, whatever is renewed since
  std::optional<asio::ssl::stream<tcp::socket>> tls;
  TlsContextPtr context;
  std::string peer;
  InputBuffer input;
  bool reading = false;
  Code end_code;            // of the input
  asio::steady_timer wake;  // the deadline of fill(), cancelled when something came
  std::function<void(Code)> on_end;
  std::size_t watch_bytes_max = 0;
};

Stream::Stream(tcp::socket socket) : impl_(std::make_shared<Impl>(std::move(socket))) {}

Stream::Stream(tcp::socket socket, TlsContextPtr context, const std::string& server_name)
    : impl_(std::make_shared<Impl>(std::move(socket))) {
  impl_->context = std::move(context);
  impl_->ssl = impl_->context->current();
  impl_->tls.emplace(std::move(impl_->socket), *impl_->ssl);
  const std::string& peer_name = impl_->context->server_name.empty() ? server_name : impl_->context->server_name;
  if (impl_->context->is_client && !peer_name.empty()) {
    Code ignored, is_name;
    asio::ip::make_address(peer_name, is_name);
    if (is_name)
      SSL_set_tlsext_host_name(impl_->tls->native_handle(), peer_name.c_str());  // addresses don't belong there
    impl_->tls->set_verify_callback(asio::ssl::host_name_verification(peer_name), ignored);
  }
}

Stream::~Stream() {
  if (impl_) impl_->close();
}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&& other) noexcept {
  if (impl_ && impl_ != other.impl_) impl_->close();
  impl_ = std::move(other.impl_);
  return *this;
}

bool Stream::encrypted() const {
  return impl_->tls.has_value();
}
bool Stream::is_open() const {
  return impl_->tls ? impl_->tls->next_layer().is_open() : impl_->socket.is_open();
}
tcp::socket& Stream::socket() {
  return impl_->tls ? impl_->tls->next_layer() : impl_->socket;
}
asio::any_io_executor Stream::executor() {
  return socket().get_executor();
}
const std::string& Stream::peer_address() const {
  return impl_->peer;
}
std::string_view Stream::input() const {
  return impl_->input.view();
}
void Stream::consume(std::size_t bytes) {
  impl_->input.consume(bytes);
}
void Stream::close() {
  impl_->close();
}

asio::awaitable<Code> Stream::handshake(Duration timeout) {
  const std::shared_ptr<Impl> impl = impl_;
  if (!impl->tls) co_return Code();
  Watchdog watchdog(impl->wake.get_executor(), timeout, [impl] { impl->close(); });
  const auto side = impl->context->is_client ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
  auto [code] = co_await impl->tls->async_handshake(side, use_tuple);
  co_return watchdog.expired() ? Code(asio::error::timed_out) : code;
}

std::string Stream::describe_handshake(const Code& code) const {
  std::string text = "TLS handshake: " + code.message();
  if (!impl_->tls) return text;
  const long verdict = SSL_get_verify_result(impl_->tls->native_handle());
  if (verdict != X509_V_OK) text += std::string(": ") + X509_verify_cert_error_string(verdict);
  return text;
}

asio::awaitable<Code> Stream::fill(Duration timeout, std::size_t input_bytes_max) {
  const std::shared_ptr<Impl> impl = impl_;
  const std::size_t before = impl->input.size();
  if (impl->end_code) co_return impl->end_code;
  if (before >= input_bytes_max && !impl->reading) co_return Code(asio::error::no_buffer_space);
  impl->start_read(input_bytes_max);
  impl->wake.expires_after(timeout);
  auto [code] = co_await impl->wake.async_wait(use_tuple);
  if (impl->input.size() > before) co_return Code();
  if (impl->end_code) co_return impl->end_code;
  co_return code ? code : Code(asio::error::timed_out);
}

void Stream::watch(std::size_t input_bytes_max, std::function<void(Code)> on_end) {
  impl_->on_end = std::move(on_end);
  impl_->watch_bytes_max = input_bytes_max;
  if (impl_->end_code) {
    // The end came before the watch: tell it as if it came now, but never from within this call.
    asio::post(impl_->wake.get_executor(), [impl = impl_] {
      if (impl->on_end) std::exchange(impl->on_end, nullptr)(impl->end_code);
    });
    return;
  }
  impl_->start_read(input_bytes_max);
}

void Stream::unwatch() {
  impl_->on_end = nullptr;
}

namespace {

/// Plain TCP: the socket is tried at once, and waited for only when it is full.
asio::awaitable<IoResult> write_plain(tcp::socket& socket, std::span<const asio::const_buffer> buffers,
                                      Duration stall_max) {
  std::array<asio::const_buffer, buffers_max> left;
  PENSTOCK_CHECK(buffers.size() <= buffers_max);
  std::copy(buffers.begin(), buffers.end(), left.begin());
  const std::size_t total = asio::buffer_size(left);
  IoResult result;
  while (result.bytes < total) {
    std::size_t count = socket.write_some(left, result.error);
    result.bytes += count;
    if (result.error == asio::error::would_block) {
      result.error = {};
      bool stalled = false;
      {
        Watchdog watchdog(socket.get_executor(), stall_max, [&] {
          stalled = true;
          Code ignored;
          socket.close(ignored);
        });
        auto [code] = co_await socket.async_wait(tcp::socket::wait_write, use_tuple);
        result.error = code;
      }
      if (stalled) result.error = asio::error::timed_out;
    }
    if (result.error) co_return result;
    for (asio::const_buffer& buffer : left) {
      const std::size_t taken = std::min(count, buffer.size());
      buffer += taken;
      count -= taken;
    }
  }
  co_return result;
}

}  // namespace

asio::awaitable<IoResult> Stream::write(std::span<const asio::const_buffer> buffers, Duration stall_max) {
  const std::shared_ptr<Impl> impl = impl_;
  if (!impl->tls) co_return co_await write_plain(impl->socket, buffers, stall_max);
  // TLS: one contiguous piece makes the fewest records and system calls; slices bound what a stall deadline covers.
  constexpr std::size_t slice_bytes = 64 << 10;
  std::string joined;
  for (const asio::const_buffer& buffer : buffers)
    joined.append(static_cast<const char*>(buffer.data()), buffer.size());
  IoResult result;
  while (result.bytes < joined.size()) {
    const std::size_t size = std::min(slice_bytes, joined.size() - result.bytes);
    Watchdog watchdog(impl->wake.get_executor(), stall_max, [impl] { impl->close(); });
    auto [code, count] =
        co_await asio::async_write(*impl->tls, asio::buffer(joined.data() + result.bytes, size), use_tuple);
    result.bytes += count;
    result.error = watchdog.expired() ? Code(asio::error::timed_out) : code;
    if (result.error) break;
  }
  co_return result;
}

asio::awaitable<void> Stream::shutdown_send() {
  const std::shared_ptr<Impl> impl = impl_;
  Code ignored;
  if (!impl->tls) {
    impl->socket.shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }
  Watchdog watchdog(impl->wake.get_executor(), std::chrono::seconds(1), [impl] { impl->tls->next_layer().cancel(); });
  co_await impl->tls->async_shutdown(use_tuple);
  impl->tls->next_layer().shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<Result<Stream>> connect(std::string host, std::uint16_t port, Duration timeout, TlsContextPtr tls,
                                        SocketOptions options) {
  const std::string what = "connection to " + host + ":" + std::to_string(port);
  const auto executor = co_await asio::this_coro::executor;
  tcp::resolver resolver(executor);
  tcp::socket socket(executor);
  Watchdog watchdog(executor, timeout, [&] {
    resolver.cancel();
    Code ignored;
    socket.close(ignored);
  });
  std::vector<tcp::endpoint> endpoints;
  Code code;
  const asio::ip::address literal = asio::ip::make_address(host, code);
  if (!code) {
    endpoints.emplace_back(literal, port);
  } else {
    auto [failure, found] = co_await resolver.async_resolve(host, std::to_string(port), use_tuple);
    if (failure) co_return to_error(watchdog.expired() ? Code(asio::error::timed_out) : failure, what);
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  code = asio::error::host_not_found;
  for (const tcp::endpoint& endpoint : endpoints) {
    Code ignored;
    socket.close(ignored);
    std::tie(code) = co_await socket.async_connect(endpoint, use_tuple);
    if (!code || watchdog.expired()) break;
  }
  if (watchdog.expired()) code = asio::error::timed_out;
  if (code) co_return to_error(code, what);
  apply(options, socket);
  if (!tls) co_return Stream(std::move(socket));
  Stream stream(std::move(socket), std::move(tls), host);
  if (Code failure = co_await stream.handshake(timeout)) {
    Error error = to_error(failure, what);
    error.message = what + ", " + stream.describe_handshake(failure);
    co_return error;
  }
  co_return std::move(stream);
}

}  // namespace penstock::async
