// One byte stream, plain TCP or TLS over TCP, behind one type, so that protocols above are compiled once. Input is read
// ahead into a buffer; a wait for more that times out leaves the read pending, so nothing is lost and nothing needs to
// be cancelled. One reader and one writer at a time; all on the executor of the socket. Every socket has TCP_NODELAY,
// SO_KEEPALIVE and TCP_USER_TIMEOUT set.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/async/tls.hpp"
#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::async {

namespace asio = boost::asio;

struct SocketOptions {
  Duration keepalive_idle = std::chrono::seconds(15);
  Duration keepalive_interval = std::chrono::seconds(5);
  int keepalive_count = 3;
  Duration user_timeout = std::chrono::seconds(30);  // unacknowledged data older than this breaks the connection
};
/// Errors are ignored: a socket that is already broken shows it at the next read.
void apply(const SocketOptions& options, asio::ip::tcp::socket& socket);

struct IoResult {
  boost::system::error_code error;
  std::size_t bytes = 0;
};

class Stream {
 public:
  explicit Stream(asio::ip::tcp::socket socket);  // plain
  /// TLS on the side that the context was made for; `server_name` is for clients.
  Stream(asio::ip::tcp::socket socket, TlsContextPtr tls, const std::string& server_name);
  ~Stream();  // closes
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  bool encrypted() const;
  /// For TLS; nothing for plain.
  asio::awaitable<boost::system::error_code> handshake(Duration timeout);
  /// What a failed handshake was about, as a sentence: with the reason why the peer's certificate is not trusted.
  std::string describe_handshake(const boost::system::error_code& code) const;

  /// What has been read and not consumed. Valid until the next call that reads or consumes.
  std::string_view input() const;
  void consume(std::size_t bytes);
  /// Waits for more input. Errors: eof, timed_out (the stream stays usable), no_buffer_space (`input_bytes_max` are
  /// buffered already), or what broke the connection.
  asio::awaitable<boost::system::error_code> fill(Duration timeout, std::size_t input_bytes_max = 1 << 20);
  /// Keeps reading ahead, up to `input_bytes_max`, and calls `on_end` once when the input ends or breaks. Until
  /// unwatch().
  void watch(std::size_t input_bytes_max, std::function<void(boost::system::error_code)> on_end);
  void unwatch();

  /// All of the buffers (at most 4), in one system call where the socket takes them. Waits while it doesn't; after
  /// `stall_max` without progress gives timed_out. `bytes` counts what was taken.
  asio::awaitable<IoResult> write(std::span<const asio::const_buffer> buffers, Duration stall_max);
  /// Ends the sending side; for TLS after close_notify. Waits for at most a second.
  asio::awaitable<void> shutdown_send();
  /// Closes at once; pending reads and writes end with operation_aborted.
  void close();
  bool is_open() const;

  asio::ip::tcp::socket& socket();
  asio::any_io_executor executor();
  const std::string& peer_address() const;  // "127.0.0.1:4242", also after the peer has gone

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the pending read
};

/// Resolves, connects (each address in turn) and, with `tls`, does the handshake, all within `timeout`.
asio::awaitable<Result<Stream>> connect(std::string host, std::uint16_t port, Duration timeout,
                                        TlsContextPtr tls = nullptr, SocketOptions options = {});

}  // namespace penstock::async
