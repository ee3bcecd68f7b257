// Serves /v1/chat/completions, /v1/completions and /v1/messages: body in, answer or stream out. One coroutine a call;
// everything that calls share is in the dispatcher. Thread: the router's I/O thread; long texts are prepared in the
// workshop. Bounds: request body by the server, the stream by CallSettings and the server, the call by its deadline.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/http/server.hpp"
#include "common/log/logger.hpp"
#include "router/core/admission/limits.hpp"
#include "router/core/api/prepare.hpp"
#include "router/proxy/call.hpp"
#include "router/proxy/dispatcher.hpp"

namespace penstock::router {

struct ProxySettings {
  ApiLimits api;
  CallSettings call;
  std::size_t inline_bytes_max = 16 << 10;  // longer bodies are parsed and tokenised in the workshop
  Duration heartbeat = std::chrono::seconds(15);
  Duration request_timeout{};  // zero: none
  bool begins_traces = false;  // requests without a traceparent get one
};

/// Who asks, as the server has established.
struct Caller {
  std::string tenant;  // "" without keys
  std::string salt;    // mixed under the request's own
};

class Proxy {
 public:
  Proxy(Dispatcher& dispatcher, ModelRegistry& registry, TenantLimiter& tenants, boost::asio::thread_pool& workshop,
        const Clock& clock, Random& random, ProxySettings settings, ProxyProbe probe, log::Logger logger);

  boost::asio::awaitable<void> serve(Endpoint endpoint, http::Request request, http::ResponseWriter& writer,
                                     Caller caller);
  std::size_t active() const { return active_; }

 private:
  struct Ready;  // a call that is ready to start
  struct Report;

  boost::asio::awaitable<ApiResult<Ready>> make_ready(Endpoint endpoint, const http::Request& request,
                                                      const Caller& caller);
  boost::asio::awaitable<void> answer(Ready ready, const http::Request& request, http::ResponseWriter& writer,
                                      CallOrigin origin, Report& report);
  boost::asio::awaitable<void> stream(Call& call, boost::asio::steady_timer& signal, const http::Request& request,
                                      http::ResponseWriter& writer, Report& report);
  boost::asio::awaitable<void> send_whole(Call& call, boost::asio::steady_timer& signal, const http::Request& request,
                                          http::ResponseWriter& writer, Report& report);
  boost::asio::awaitable<void> refuse(const http::Request& request, http::ResponseWriter& writer, ApiError error,
                                      Report& report);
  void close(const http::Request& request, const Report& report);
  std::string trace_of(const http::Request& request);

  Dispatcher& dispatcher_;
  ModelRegistry& registry_;
  TenantLimiter& tenants_;
  boost::asio::thread_pool& workshop_;
  const Clock& clock_;
  Random& random_;
  ProxySettings settings_;
  ProxyProbe probe_;
  log::Logger logger_;
  std::size_t active_ = 0;
};

}  // namespace penstock::router
