#include "worker/server/control_server.hpp"

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <unordered_map>
#include <utility>
#include <variant>

#include "common/async/deadline.hpp"
#include "common/async/event_queue.hpp"
#include "common/async/listen.hpp"
#include "common/async/task_group.hpp"
#include "worker/server/session.hpp"

namespace penstock::worker {
namespace {

using boost::asio::ip::tcp;

struct SnapshotReady {
  std::uint64_t session = 0;
  std::vector<protocol::Snapshot> parts;
};
struct RequestEnded {
  RequestId request;
  std::uint32_t attempt = 0;
};
struct Drained {};
struct Broken {
  Error error;
};
using SinkEvent = std::variant<protocol::Step, protocol::RequestError, protocol::TransferStatus, protocol::CacheEvents,
                               SnapshotReady, protocol::Load, RequestEnded, Drained, Broken>;

}  // namespace

struct ControlServer::State : SessionHost, EngineSink, std::enable_shared_from_this<ControlServer::State> {
  State(boost::asio::any_io_executor io, ControlServerOptions server_options, WorkerIdentity worker_identity,
        std::function<void()> drain_request, log::Logger log)
      : options(std::move(server_options)),
        me(std::move(worker_identity)),
        on_drain_request(std::move(drain_request)),
        logger(std::move(log)),
        acceptor(io),
        tasks(io,
              [this](std::string_view task, std::string_view what) {
                logger.error("control task failed", {{"task", task}, {"reason", what}});
              }),
        events(io, options.sink_queue_max, [this](std::vector<SinkEvent>&& batch) {
          for (auto& event : batch) std::visit([this](auto& one) { deliver(one); }, event);
        }) {}

  // ---- SessionHost ----
  const WorkerIdentity& identity() const override { return me; }
  bool post(EngineCommand command) override { return engine->post(std::move(command)); }
  bool is_draining() const override { return draining; }
  void request_drain() override { on_drain_request(); }
  bool claim(RequestId request, std::uint64_t session) override { return owners.emplace(request, session).second; }
  void forget(RequestId request) override { owners.erase(request); }

  // ---- EngineSink, on the engine thread ----
  void push(SinkEvent event) {
    // A full queue means that the I/O thread is stuck: losing steps silently would be worse than ending.
    if (!events.push(std::move(event)) && !stopping) {
      logger.error("the control server's queue is full", {{"events", events.size()}});
    }
  }
  void on_step(protocol::Step step) override { push(std::move(step)); }
  void on_request_error(protocol::RequestError error) override { push(std::move(error)); }
  void on_transfer_status(protocol::TransferStatus status) override { push(std::move(status)); }
  void on_cache_events(protocol::CacheEvents cache_events) override { push(std::move(cache_events)); }
  void on_snapshot(std::uint64_t ticket, std::vector<protocol::Snapshot> parts) override {
    push(SnapshotReady{ticket, std::move(parts)});
  }
  void on_load(const protocol::Load& load) override { push(load); }
  void on_request_end(RequestId request, std::uint32_t attempt) override { push(RequestEnded{request, attempt}); }
  void on_drained() override { push(Drained{}); }
  void on_broken(const Error& error) override { push(Broken{error}); }
  void on_stuck(const StuckStep& step) override {
    if (on_stuck_event) on_stuck_event(step);
  }

  // ---- The same events, on the I/O executor ----
  std::shared_ptr<Session> session_of(RequestId request) {
    auto owner = owners.find(request);
    if (owner == owners.end()) return nullptr;
    auto session = sessions.find(owner->second);
    return session == sessions.end() ? nullptr : session->second;
  }
  void deliver(protocol::Step& step) {
    std::unordered_map<std::uint64_t, protocol::Step> by_session;
    for (auto& choice : step.choices) {
      auto owner = owners.find(choice.request);
      if (owner != owners.end()) by_session[owner->second].choices.push_back(std::move(choice));
    }
    for (const auto& progress : step.progress) {
      auto owner = owners.find(progress.request);
      if (owner != owners.end()) by_session[owner->second].progress.push_back(progress);
    }
    for (auto& [id, part] : by_session) {
      if (auto session = sessions.find(id); session != sessions.end()) session->second->send(std::move(part));
    }
  }
  void deliver(protocol::RequestError& error) {
    if (auto session = session_of(error.request)) session->send_error(error);
  }
  void deliver(protocol::TransferStatus& status) {
    if (auto session = session_of(status.request)) session->send(std::move(status));
  }
  void deliver(protocol::CacheEvents& cache_events) { broadcast(cache_events); }
  void deliver(SnapshotReady& ready) {
    auto session = sessions.find(ready.session);
    if (session == sessions.end()) return;
    for (auto& part : ready.parts) session->second->send(std::move(part));
  }
  void deliver(protocol::Load& load) {
    last_load = load;
    last_load.draining |= draining;
    for (auto& [id, session] : sessions) {
      if (session->welcomed()) session->send_load(last_load);
    }
  }
  void deliver(RequestEnded& ended) {
    if (auto session = session_of(ended.request)) session->end_request(ended.request, ended.attempt);
  }
  void deliver(Drained&) {
    if (on_drained_event) on_drained_event();
  }
  void deliver(Broken& broken) {
    if (on_broken_event) on_broken_event(broken.error);
  }
  void broadcast(const protocol::WorkerMessage& message) {
    for (auto& [id, session] : sessions) {
      if (session->welcomed()) session->send(message);
    }
  }

  boost::asio::awaitable<void> accept_loop(std::shared_ptr<State> self) {
    while (acceptor.is_open()) {
      boost::system::error_code code;
      tcp::socket socket =
          co_await acceptor.async_accept(boost::asio::redirect_error(boost::asio::use_awaitable, code));
      if (code == boost::asio::error::operation_aborted) co_return;
      if (code) {
        logger.warn("accept failed", {{"reason", code.message()}});
        co_await async::pause(std::chrono::milliseconds(100));  // out of file descriptors: let some close
        continue;
      }
      if (sessions.size() >= options.sessions_max) {
        logger.warn("too many routers, connection refused", {{"sessions", sessions.size()}});
        continue;  // the socket closes
      }
      tasks.spawn("session", serve(self, std::move(socket)));
    }
  }

  boost::asio::awaitable<void> serve(std::shared_ptr<State> self, tcp::socket socket) {
    async::Stream stream =
        options.tls ? async::Stream(std::move(socket), options.tls, "") : async::Stream(std::move(socket));
    if (options.tls) {
      if (auto code = co_await stream.handshake(options.hello_deadline)) {
        logger.warn("TLS handshake failed", {{"router", stream.peer_address()}, {"reason", code.message()}});
        co_return;
      }
    }
    const std::uint64_t id = ++next_session;
    auto session = std::make_shared<Session>(id, std::move(stream), *self, logger);
    sessions.emplace(id, session);
    co_await session->run(options.hello_deadline, options.idle_deadline);
    sessions.erase(id);
  }

  ControlServerOptions options;
  WorkerIdentity me;
  std::function<void()> on_drain_request;
  std::function<void()> on_drained_event;
  std::function<void(const Error&)> on_broken_event;
  std::function<void(const StuckStep&)> on_stuck_event;
  log::Logger logger;
  tcp::acceptor acceptor;
  async::TaskGroup tasks;
  async::EventQueue<SinkEvent> events;
  Engine* engine = nullptr;
  bool draining = false;
  std::atomic<bool> stopping = false;
  std::uint64_t next_session = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Session>> sessions;  // shared with their own tasks
  std::unordered_map<RequestId, std::uint64_t> owners;                   // living requests to sessions
  protocol::Load last_load;
};

ControlServer::ControlServer(boost::asio::any_io_executor executor, ControlServerOptions options,
                             WorkerIdentity identity, std::function<void()> on_drain_request, log::Logger logger)
    : state_(std::make_shared<State>(std::move(executor), std::move(options), std::move(identity),
                                     std::move(on_drain_request), std::move(logger))) {}

ControlServer::~ControlServer() {
  state_->stopping = true;
  state_->events.close();
  boost::system::error_code ignored;
  state_->acceptor.close(ignored);
  for (auto& [id, session] : state_->sessions) session->connection().close();
}

EngineSink& ControlServer::sink() {
  return *state_;
}

void ControlServer::set_engine_events(std::function<void()> on_drained, std::function<void(const Error&)> on_broken,
                                      std::function<void(const StuckStep&)> on_stuck) {
  state_->on_drained_event = std::move(on_drained);
  state_->on_broken_event = std::move(on_broken);
  state_->on_stuck_event = std::move(on_stuck);
}

Result<std::uint16_t> ControlServer::start(Engine& engine) {
  state_->engine = &engine;
  state_->me.welcome.epoch = engine.epoch();
  const auto& options = state_->options;
  auto& acceptor = state_->acceptor;
  if (auto opened = async::listen(acceptor, options.address, options.port); !opened) {
    return make_error(opened.error().code, "control " + opened.error().message + " (--control-port)");
  }
  state_->tasks.spawn("accept", state_->accept_loop(state_));
  return acceptor.local_endpoint().port();
}

void ControlServer::announce_drain() {
  state_->draining = true;
  state_->deliver(state_->last_load);
}

boost::asio::awaitable<void> ControlServer::stop(Duration flush_deadline) {
  state_->stopping = true;
  boost::system::error_code ignored;
  state_->acceptor.close(ignored);
  state_->broadcast(protocol::Goodbye{"the worker stops"});
  auto sessions = state_->sessions;
  for (auto& [id, session] : sessions) {
    (void)co_await session->connection().flush(flush_deadline);
    session->connection().close();
  }
  co_await state_->tasks.drain(flush_deadline);
}

std::size_t ControlServer::session_count() const {
  return state_->sessions.size();
}

}  // namespace penstock::worker
