// One byte stream, plain TCP or TLS over TCP, behind one type, so that protocols above are compiled once. One reader
// and one writer at a time; all on the executor of the socket. Every socket has TCP_NODELAY, SO_KEEPALIVE and
// TCP_USER_TIMEOUT set.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

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
  explicit Stream(asio::ip::tcp::socket socket);                                                   // plain
  Stream(asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> tls, std::string server_name);  // client or server
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  bool encrypted() const;
  /// For TLS; nothing for plain.
  asio::awaitable<boost::system::error_code> handshake();
  asio::awaitable<IoResult> read_some(asio::mutable_buffer buffer);
  /// All of the buffers, in one system call where the socket takes them. `bytes` counts what was taken.
  asio::awaitable<IoResult> write(std::span<const asio::const_buffer> buffers);
  /// Ends the sending side; for TLS, sends close_notify if that is possible at once.
  void shutdown_send();
  /// Closes at once; pending reads and writes end with operation_aborted.
  void close();
  bool is_open() const;

  asio::ip::tcp::socket& socket();
  asio::any_io_executor executor();
  std::string peer_address() const;  // "127.0.0.1:4242", also after the peer has gone

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Resolves, connects (each address in turn) and, with `tls`, does the handshake, all within `timeout`.
asio::awaitable<Result<Stream>> connect(std::string host, std::uint16_t port, Duration timeout,
                                        std::shared_ptr<TlsContext> tls = nullptr, SocketOptions options = {});

}  // namespace penstock::async
