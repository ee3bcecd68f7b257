#include "common/http/server.hpp"

#include <sys/resource.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/async/listen.hpp"
#include "common/http/detail/connection.hpp"
#include "common/time/wall_clock.hpp"

namespace penstock::http {

using asio::ip::tcp;
using detail::Connection;
using Code = boost::system::error_code;

namespace {

constexpr auto accept_pause = std::chrono::milliseconds(100);
constexpr auto cancelled_wait_max = std::chrono::seconds(5);

std::size_t half_of_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 65'536;
  return static_cast<std::size_t>(limit.rlim_cur) / 2;
}

}  // namespace

namespace detail {

ServerState::ServerState(asio::any_io_executor executor_, ServerOptions options_, Handler handler_, log::Logger logger_,
                         ServerProbe probe_)
    : executor(std::move(executor_)),
      options(std::move(options_)),
      connections_max(options.limits.connections_max > 0 ? options.limits.connections_max : half_of_file_limit()),
      handler(std::move(handler_)),
      logger(std::move(logger_)),
      probe(probe_),
      changed(executor) {}

const std::string& ServerState::date() {
  const WallTime now = wall_now();
  if (now.unix_s != date_unix_s || date_text.empty()) {
    date_unix_s = now.unix_s;
    date_text = format_http_date(now);
  }
  return date_text;
}

void ServerState::accept(const std::shared_ptr<tcp::acceptor>& acceptor) {
  acceptor->async_accept([self = shared_from_this(), acceptor](const Code& code, tcp::socket socket) {
    if (!acceptor->is_open()) return;
    if (code == asio::error::no_descriptors || code == boost::system::errc::too_many_files_open_in_system ||
        code == asio::error::no_memory) {
      self->pause_accepting(acceptor, code.message());
      return;
    }
    if (!code) self->start(std::move(socket));
    self->accept(acceptor);
  });
}

/// Out of descriptors: what is open goes on; accepting is tried again shortly.
void ServerState::pause_accepting(const std::shared_ptr<tcp::acceptor>& acceptor, const std::string& why) {
  logger.warn("accepting paused", {{"reason", why}, {"connections", connections.size()}});
  auto timer = std::make_shared<asio::steady_timer>(executor, accept_pause);
  timer->async_wait([self = shared_from_this(), acceptor, timer](const Code&) {
    if (acceptor->is_open()) self->accept(acceptor);
  });
}

void ServerState::start(tcp::socket socket) {
  Code code;
  const tcp::endpoint peer = socket.remote_endpoint(code);
  if (code || draining) return;
  probe.connections_total.increment();
  std::size_t& of_source = connections_of_source[peer.address()];
  if (connections.size() >= connections_max || of_source >= options.limits.connections_per_source_max) {
    if (of_source == 0) connections_of_source.erase(peer.address());
    probe.rejected_total.increment();
    return;
  }
  ++of_source;
  auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
  connection->source = peer.address();
  connections.insert(connection);
  probe.connections.add(1);
  asio::co_spawn(executor, Connection::session(connection),
                 asio::bind_cancellation_slot(connection->signal.slot(),
                                              [self = shared_from_this(), connection](const std::exception_ptr&) {
                                                // An exception here is a cancelled session: the client has gone.
                                                self->finished(connection);
                                              }));
}

void ServerState::finished(const std::shared_ptr<Connection>& connection) {
  connections.erase(connection);
  probe.connections.add(-1);
  auto source = connections_of_source.find(connection->source);
  if (--source->second == 0) connections_of_source.erase(source);
  if (connections.empty()) changed.cancel();
}

void ServerState::stop_listening() {
  for (const auto& acceptor : acceptors) {
    Code ignored;
    acceptor->close(ignored);
  }
  acceptors.clear();
}

}  // namespace detail

struct Server::State : detail::ServerState {
  using ServerState::ServerState;
};

ServerProbe make_server_probe(metrics::Registry& registry, const std::string& name) {
  const metrics::Labels labels{{"server", name}};
  ServerProbe probe;
  probe.connections_total = registry.counter("penstock_http_connections_total", "Connections accepted.", labels);
  probe.connections = registry.gauge("penstock_http_connections", "Connections open now.", labels);
  probe.requests_total = registry.counter("penstock_http_requests_total", "Requests given to handlers.", labels);
  probe.requests_active = registry.gauge("penstock_http_requests_active", "Requests being served now.", labels);
  probe.rejected_total =
      registry.counter("penstock_http_rejected_total",
                       "Requests and connections refused before a handler: framing, limits, deadlines.", labels);
  probe.disconnects_total =
      registry.counter("penstock_http_disconnects_total", "Clients that went before the end of the answer.", labels);
  probe.stalls_total =
      registry.counter("penstock_http_stalls_total", "Clients cut because they took no data for too long.", labels);
  return probe;
}

Server::Server(asio::any_io_executor executor, ServerOptions options, Handler handler, log::Logger logger,
               ServerProbe probe)
    : state_(std::make_shared<State>(std::move(executor), std::move(options), std::move(handler), std::move(logger),
                                     probe)) {}

Server::~Server() {
  stop();
  // A context that never runs again ends no session: then it frees them, and they the state, if the state lets go.
  state_->connections.clear();
}

Result<std::uint16_t> Server::listen(const std::string& address, std::uint16_t port) {
  auto acceptor = std::make_shared<tcp::acceptor>(state_->executor);
  const auto reuse = state_->options.reuse_port ? async::ReusePort::yes : async::ReusePort::no;
  if (auto opened = async::listen(*acceptor, address, port, reuse); !opened) return opened.error();
  state_->acceptors.push_back(acceptor);
  state_->accept(acceptor);
  return acceptor->local_endpoint().port();
}

void Server::stop() {
  state_->stop_listening();
  const std::vector<std::shared_ptr<Connection>> open(state_->connections.begin(), state_->connections.end());
  for (const auto& connection : open) connection->abort();
}

asio::awaitable<std::size_t> Server::drain(Duration grace) {
  const std::shared_ptr<State> state = state_;
  state->stop_listening();
  state->draining = true;
  const std::vector<std::shared_ptr<Connection>> open(state->connections.begin(), state->connections.end());
  for (const auto& connection : open) connection->close_if_idle();
  if (!state->connections.empty()) {
    state->changed.expires_after(grace);
    co_await state->changed.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  const std::size_t left = state->connections.size();
  if (left > 0) {
    stop();
    state->changed.expires_after(cancelled_wait_max);
    co_await state->changed.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return left;
}

std::size_t Server::connection_count() const {
  return state_->connections.size();
}

}  // namespace penstock::http
