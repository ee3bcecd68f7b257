// Internal to common/http: one connection of a server, and what connections share with it. All on the server's
// executor.
#pragma once

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>

#include "common/async/stream.hpp"
#include "common/http/detail/request_parser.hpp"
#include "common/http/server.hpp"

namespace penstock::http::detail {

class Connection;

/// What outlives the Server object: connections hold it until they have ended.
struct ServerState : std::enable_shared_from_this<ServerState> {
  ServerState(asio::any_io_executor executor_, ServerOptions options_, Handler handler_, log::Logger logger_,
              ServerProbe probe_);

  void accept(const std::shared_ptr<asio::ip::tcp::acceptor>& acceptor);
  void pause_accepting(const std::shared_ptr<asio::ip::tcp::acceptor>& acceptor, const std::string& why);
  void start(asio::ip::tcp::socket socket);
  void finished(const std::shared_ptr<Connection>& connection);
  void stop_listening();
  /// The value of the Date header, made once a second.
  const std::string& date();

  asio::any_io_executor executor;
  ServerOptions options;
  std::size_t connections_max;
  Handler handler;
  log::Logger logger;
  ServerProbe probe;
  std::list<std::shared_ptr<asio::ip::tcp::acceptor>> acceptors;  // shared with their pending accept
  std::unordered_set<std::shared_ptr<Connection>> connections;    // shared with their session
  std::map<asio::ip::address, std::size_t> connections_of_source;
  asio::steady_timer changed;  // cancelled when the last connection ends
  bool draining = false;
  std::string date_text;
  std::int64_t date_unix_s = 0;
};

class Connection final : public ResponseWriter, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> server, asio::ip::tcp::socket socket);

  /// Serves requests until the connection ends.
  static asio::awaitable<void> session(std::shared_ptr<Connection> self);

  /// Closes at once if no request is being read or served.
  void close_if_idle();
  /// Cancels the handler and closes.
  void abort();

  asio::awaitable<Result<void>> send(Response response) override;
  void begin_stream(int status, Headers headers) override;
  asio::awaitable<Result<void>> write(std::string_view chunk) override;
  asio::awaitable<Result<void>> end(std::string_view last_chunk) override;
  void fail() override { phase_ = Phase::failed; }
  bool started() const override { return phase_ != Phase::waiting; }
  bool is_client_connected() const override { return !client_gone_; }
  void on_disconnect(std::function<void()> callback) override { on_disconnect_ = std::move(callback); }

  asio::cancellation_signal signal;  // cancels the session
  asio::ip::address source;

 private:
  /// Of the answer to the request being served.
  enum class Phase : std::uint8_t { waiting, streaming, done, failed };
  enum class Received : std::uint8_t { request, closed };

  asio::awaitable<Received> receive(RequestParser& parser);
  asio::awaitable<Received> receive_body(RequestParser& parser);
  asio::awaitable<void> serve(Request request);
  asio::awaitable<void> refuse(ApiError error);
  asio::awaitable<void> linger();
  asio::awaitable<Result<void>> put(std::span<const asio::const_buffer> buffers);
  void client_went(const boost::system::error_code& code);
  std::string make_head(int status, const Headers& headers, std::optional<std::size_t> content_length);
  bool may_keep_alive() const;

  std::shared_ptr<ServerState> server_;
  async::Stream stream_;
  std::size_t requests_ = 0;
  bool idle_ = true;
  bool client_gone_ = false;
  bool unusable_ = false;  // a write failed

  // Of the current request.
  Phase phase_ = Phase::waiting;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
  bool is_head_ = false;
  bool chunked_ = false;
  std::string id_;
  std::string pending_head_;
  std::function<void()> on_disconnect_;
};

}  // namespace penstock::http::detail
