// The HTTP/1.1 server of every program. A Server belongs to one executor that runs one thing at a time (an io_context
// with one thread, or a strand); for several threads make one Server each with reuse_port. Requests arrive whole, under
// limits; a handler answers through its ResponseWriter. Bad framing never reaches a handler.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/async/tls.hpp"
#include "common/base/result.hpp"
#include "common/http/limits.hpp"
#include "common/http/message.hpp"
#include "common/log/logger.hpp"
#include "common/metrics/metrics.hpp"
#include "common/time/clock.hpp"

namespace penstock::http {

namespace asio = boost::asio;

enum class HalfClose : std::uint8_t {
  client_gone,  // the end of the client's input while a request is served cancels it
  keep_serving,
};

struct ServerOptions {
  ServerLimits limits;
  async::TlsContextPtr tls;  // null: plain
  HalfClose half_close = HalfClose::client_gone;
  bool reuse_port = false;
  std::string server_name = "penstock";
};

/// Answers one request. Lives in the connection, used by the handler only, on the server's executor.
class ResponseWriter {
 public:
  /// The whole answer. Errors: unavailable (the client has gone), deadline_exceeded (it stalled).
  virtual asio::awaitable<Result<void>> send(Response response) = 0;

  /// A streamed answer. The header leaves with the first chunk, or with flush(), or at end().
  virtual void begin_stream(int status, Headers headers) = 0;
  /// One chunk in one system call. Returns at once while the client keeps up; waits when it doesn't; after
  /// stream_stall_max without progress fails with deadline_exceeded. An empty chunk only sends the header.
  virtual asio::awaitable<Result<void>> write(std::string_view chunk) = 0;
  /// The proper end, with a last chunk in the same system call.
  virtual asio::awaitable<Result<void>> end(std::string_view last_chunk = {}) = 0;
  /// The abnormal end: the connection closes without the last chunk, so that the client can tell.
  virtual void fail() = 0;

  virtual bool started() const = 0;  // something of the answer has been given to send() or begin_stream()
  virtual bool is_client_connected() const = 0;
  /// Called once, on the executor, when the client goes away (or the server stops) before the answer is complete; right
  /// after it the handler itself is cancelled (its pending await ends with operation_aborted). Cleared when the handler
  /// returns.
  virtual void on_disconnect(std::function<void()> callback) = 0;

 protected:
  ~ResponseWriter() = default;
};

/// The writer outlives the call. A handler that returns without an answer gives 500; so does one that throws.
using Handler = std::function<asio::awaitable<void>(Request request, ResponseWriter& writer)>;

struct ServerProbe {
  metrics::Counter connections_total;
  metrics::Gauge connections;
  metrics::Counter requests_total;
  metrics::Gauge requests_active;
  metrics::Counter rejected_total;     // answered or cut before a handler: framing, limits, deadlines
  metrics::Counter disconnects_total;  // clients gone before the end of the answer
  metrics::Counter stalls_total;
};
/// Series `penstock_http_*` with the label server=`name`.
ServerProbe make_server_probe(metrics::Registry& registry, const std::string& name);

class Server {
 public:
  Server(asio::any_io_executor executor, ServerOptions options, Handler handler, log::Logger logger,
         ServerProbe probe = {});
  /// Closes everything at once. Call stop() and run the executor, or drain(), before what handlers refer to goes away.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Binds and starts to accept; may be called for several addresses. Port 0 takes a free one. The error is one
  /// sentence: "port 8000 is in use: ...". Returns the port.
  Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);

  /// Stops accepting, closes idle connections, lets requests finish (with Connection: close); after `grace` the rest is
  /// cancelled. Returns how many were cancelled.
  asio::awaitable<std::size_t> drain(Duration grace);
  /// Stops accepting and cancels everything.
  void stop();

  std::size_t connection_count() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with connections, which end after the server object
};

}  // namespace penstock::http
