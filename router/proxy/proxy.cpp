#include "router/proxy/proxy.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>

#include "common/http/routes.hpp"
#include "common/http/sse.hpp"
#include "common/time/wall_clock.hpp"
#include "router/backend/workshop.hpp"
#include "router/core/api/trace_context.hpp"
#include "router/proxy/http_errors.hpp"

namespace penstock::router {
namespace {

namespace asio = boost::asio;

// A quarter of a message is left for what else it carries, also the tokens accepted before a migration.
constexpr std::uint64_t prompt_tokens_max = protocol::message_bytes_max / 4 * 3 / sizeof(TokenId);

struct Work {
  PreparedRequest prepared;
  std::vector<std::vector<BlockHash>> blocks;
};

ApiResult<Work> prepare_work(const ValidatedRequest& request, const ModelText& text, const text::BlockHasher& hasher,
                             text::BlockHashCache& hashes) {
  auto prepared = prepare(request, text, wall_now().unix_s);
  if (!prepared) return prepared.error();
  Work work;
  for (const auto& prompt : prepared->prompts) {
    if (prompt.tokens.size() > prompt_tokens_max) {
      return invalid_field("prompt", "the prompt has more than " + std::to_string(prompt_tokens_max) + " tokens");
    }
    work.blocks.push_back(hashes.hash_blocks(hasher, prompt.tokens));
  }
  work.prepared = std::move(*prepared);
  return work;
}

// With its length before it a tenant's name can't run into a salt that a client chose.
std::string full_salt(const std::string& tenant, const std::string& own) {
  if (tenant.empty()) return own;
  return std::to_string(tenant.size()) + ":" + tenant + "/" + own;
}

std::optional<Duration> client_timeout(const http::Request& request) {
  const auto text = request.headers.find("x-penstock-timeout-ms");
  std::int64_t milliseconds = 0;
  if (!text) return std::nullopt;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), milliseconds);
  if (error != std::errc() || end != text->data() + text->size() || milliseconds <= 0 || milliseconds > 86'400'000) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(milliseconds);
}

http::Headers stream_headers(const Call& call, const http::Request& request) {
  http::Headers headers;
  headers.add("content-type", "text/event-stream; charset=utf-8");
  headers.add("cache-control", "no-cache, no-transform");
  headers.add("x-accel-buffering", "no");
  if (request.headers.find("x-penstock-explain") && call.route()) {
    headers.add("x-penstock-route", route_header(*call.route()));
  }
  return headers;
}

}  // namespace

struct Proxy::Ready {
  ServedModel* model = nullptr;
  ValidatedRequest request;
  std::string cache_salt;
  Work work;
};

/// What the log line and the metrics say at the end.
struct Proxy::Report {
  TimePoint arrived{};
  std::string model;
  std::string tenant;
  std::string trace;  // the span of this request, "" if it is not traced
  RequestOutcome outcome = RequestOutcome::cancelled;
  std::optional<ApiError> error;
  ClientUsage usage;
  std::uint32_t migrations = 0;
};

Proxy::Proxy(Dispatcher& dispatcher, ModelRegistry& registry, TenantLimiter& tenants, asio::thread_pool& workshop,
             const Clock& clock, Random& random, ProxySettings settings, ProxyProbe probe, log::Logger logger)
    : dispatcher_(dispatcher),
      registry_(registry),
      tenants_(tenants),
      workshop_(workshop),
      clock_(clock),
      random_(random),
      settings_(std::move(settings)),
      probe_(std::move(probe)),
      logger_(std::move(logger)) {}

asio::awaitable<void> Proxy::serve(Endpoint endpoint, http::Request request, http::ResponseWriter& writer,
                                   Caller caller) {
  if (auto wrong = http::require_json(request)) {
    ApiError error = invalid_field("", wrong->message);
    error.status = wrong->status;
    error.param.reset();
    error.code = wrong->code.value_or("");
    http::Response response = to_response(error, request.path);
    (void)co_await writer.send(std::move(response));
    co_return;
  }
  Report report;
  report.arrived = clock_.now();
  report.tenant = caller.tenant;
  report.trace = trace_of(request);
  // Whatever way the coroutine ends, also by cancellation, the request is counted and logged once.
  struct Closing {
    Proxy& proxy;
    const http::Request& request;
    const Report& report;
    ~Closing() { proxy.close(request, report); }
  };
  ++active_;
  probe_.requests_active.add(1);
  const Closing closing{*this, request, report};

  auto ready = co_await make_ready(endpoint, request, caller);
  if (!ready) co_return co_await refuse(request, writer, std::move(ready).error(), report);
  report.model = ready->model->name;
  probe_.prepare_seconds.observe(clock_.now() - report.arrived);
  probe_.unknown_fields_total.increment(ready->request->unknown_fields);

  CallOrigin origin;
  origin.client_request_id = request.id;
  origin.tenant = caller.tenant;
  origin.cache_salt = std::move(ready->cache_salt);
  origin.trace = report.trace;
  origin.arrived = report.arrived;
  const Duration timeout = client_timeout(request).value_or(settings_.request_timeout);
  if (timeout > Duration{}) origin.deadline = report.arrived + timeout;
  origin.created = wall_now().unix_s;
  origin.seed = random_.next();
  origin.id_seed = random_.next();

  std::uint64_t tokens = 0;
  for (const auto& prompt : ready->work.prepared.prompts) tokens += prompt.tokens.size();
  if (auto refused = tenants_.enter(caller.tenant, tokens, clock_.now())) {
    co_return co_await refuse(request, writer, rate_limit_exceeded(*refused), report);
  }
  struct Leaving {
    Proxy& proxy;
    const Report& report;
    ~Leaving() { proxy.tenants_.leave(report.tenant, report.usage.completion_tokens, proxy.clock_.now()); }
  };
  const Leaving leaving{*this, report};
  co_await answer(std::move(*ready), request, writer, std::move(origin), report);
}

asio::awaitable<ApiResult<Proxy::Ready>> Proxy::make_ready(Endpoint endpoint, const http::Request& request,
                                                           const Caller& caller) {
  const bool is_long = request.body.size() > settings_.inline_bytes_max;
  auto parse = [&] { return parse_request(endpoint, request.body, settings_.api); };
  // No co_await within ?: here: gcc 12 destroys its result twice.
  std::optional<ApiResult<ValidatedRequest>> parsing;
  if (is_long) {
    parsing.emplace(co_await run_in(workshop_, parse));
  } else {
    parsing.emplace(parse());
  }
  ApiResult<ValidatedRequest>& parsed = *parsing;
  if (!parsed) co_return parsed.error();
  ServedModel* model = registry_.find((*parsed)->model);
  if (model == nullptr) co_return unknown_model((*parsed)->model);
  // Held here: the model may get another text while this one is used.
  const std::shared_ptr<const ModelText> text = model->text;
  if (!text) {
    co_return no_capacity(model->problem.empty() ? "The model is being loaded." : model->problem,
                          std::chrono::seconds(1));
  }
  const std::string salt = full_salt(caller.salt, (*parsed)->cache_salt);
  std::optional<text::BlockHasher> salted;
  if (!salt.empty()) salted = registry_.hasher(*model, salt);
  const text::BlockHasher hasher = salted ? *salted : *model->hasher;
  auto work = [&] { return prepare_work(*parsed, *text, hasher, model->block_hashes); };
  std::optional<ApiResult<Work>> done;
  if (is_long) {
    done.emplace(co_await run_in(workshop_, work));
  } else {
    done.emplace(work());
  }
  if (!*done) co_return done->error();
  Ready ready{model, std::move(*parsed), salt, std::move(**done)};
  co_return ready;
}

asio::awaitable<void> Proxy::answer(Ready ready, const http::Request& request, http::ResponseWriter& writer,
                                    CallOrigin origin, Report& report) {
  asio::steady_timer signal(co_await asio::this_coro::executor);
  Call call(dispatcher_, *ready.model, std::move(ready.request), settings_.call, std::move(origin),
            [&signal] { signal.cancel(); });
  struct Telling {
    Call& call;
    Report& report;
    ~Telling() {
      report.usage = call.usage();
      report.migrations = call.migrations();
    }
  };
  const Telling telling{call, report};
  writer.on_disconnect([&call] { call.client_gone(); });
  call.start(std::move(ready.work.prepared), std::move(ready.work.blocks));
  if (call.fields().stream) {
    co_await stream(call, signal, request, writer, report);
  } else {
    co_await send_whole(call, signal, request, writer, report);
  }
  writer.on_disconnect({});
}

asio::awaitable<void> Proxy::stream(Call& call, asio::steady_timer& signal, const http::Request& request,
                                    http::ResponseWriter& writer, Report& report) {
  std::string chunk;
  while (writer.is_client_connected()) {
    if (!call.has_output() && !call.is_done()) {
      signal.expires_after(settings_.heartbeat);
      auto [woken] = co_await signal.async_wait(asio::as_tuple(asio::use_awaitable));
      if (woken) continue;
      // The timer ran out: the client and what is between shall know that something still comes.
      if (!writer.started()) writer.begin_stream(200, stream_headers(call, request));
      std::string comment;
      http::append_sse_comment(comment, "waiting");
      if (!co_await writer.write(comment)) break;
      continue;
    }
    if (call.error() && !writer.started()) co_return co_await refuse(request, writer, *call.error(), report);
    if (!writer.started()) writer.begin_stream(200, stream_headers(call, request));
    call.take_output(chunk);
    if (call.is_overrun()) {
      probe_.clients_slow_total.increment();
      report.error = call.error();
      co_return writer.fail();
    }
    if (call.error()) {
      // Headers are out, so the error goes into the stream, which then ends abnormally: no [DONE].
      call.append_error(chunk);
      (void)co_await writer.write(chunk);
      writer.fail();
      report.error = call.error();
      report.outcome = RequestOutcome::server_error;
      co_return;
    }
    if (call.is_done()) {
      if (co_await writer.end(chunk)) report.outcome = RequestOutcome::ok;
      co_return;
    }
    auto written = co_await writer.write(chunk);
    if (!written) {
      if (written.error().code == ErrorCode::deadline_exceeded) probe_.clients_slow_total.increment();
      break;
    }
  }
  call.client_gone();
}

asio::awaitable<void> Proxy::send_whole(Call& call, asio::steady_timer& signal, const http::Request& request,
                                        http::ResponseWriter& writer, Report& report) {
  while (!call.is_done() && writer.is_client_connected()) {
    signal.expires_after(settings_.heartbeat);
    (void)co_await signal.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (!call.is_done()) co_return call.client_gone();
  if (call.error()) co_return co_await refuse(request, writer, *call.error(), report);
  http::Response response = http::json_response(200, call.whole());
  if (request.headers.find("x-penstock-explain") && call.route()) {
    response.headers.add("x-penstock-route", route_header(*call.route()));
  }
  if (co_await writer.send(std::move(response))) report.outcome = RequestOutcome::ok;
}

asio::awaitable<void> Proxy::refuse(const http::Request& request, http::ResponseWriter& writer, ApiError error,
                                    Report& report) {
  report.outcome = error.status < 500 ? RequestOutcome::client_error : RequestOutcome::server_error;
  http::Response response = to_response(error, request.path);
  report.error = std::move(error);
  (void)co_await writer.send(std::move(response));
}

void Proxy::close(const http::Request& request, const Report& report) {
  --active_;
  probe_.requests_active.add(-1);
  probe_.requests_total[static_cast<std::size_t>(report.outcome)].increment();
  const Duration took = clock_.now() - report.arrived;
  probe_.request_duration_seconds.observe(took);
  if (report.outcome == RequestOutcome::ok) return;
  logger_.warn("request failed",
               {{"request_id", request.id},
                {"model", report.model},
                {"tenant", report.tenant},
                {"outcome", to_string(report.outcome)},
                {"status", report.error ? report.error->status : 0},
                {"code", report.error ? std::string_view(report.error->code) : std::string_view("client_gone")},
                {"reason", report.error ? std::string_view(report.error->message) : std::string_view()},
                {"prompt_tokens", report.usage.prompt_tokens},
                {"output_tokens", report.usage.completion_tokens},
                {"migrations", report.migrations},
                {"duration_ms", std::chrono::duration_cast<std::chrono::milliseconds>(took).count()},
                {"traceparent", report.trace}});
}

std::string Proxy::trace_of(const http::Request& request) {
  std::string_view parent;
  for (const auto& [name, value] : request.headers) {
    if (!http::equal_names(name, "traceparent")) continue;
    parent = parent.empty() ? std::string_view(value) : std::string_view("ambiguous");
  }
  std::string trace = child_trace(parent, random_.next());
  if (trace.empty() && settings_.begins_traces) trace = new_trace(random_.next(), random_.next(), random_.next());
  return trace;
}

}  // namespace penstock::router
