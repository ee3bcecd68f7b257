#include "router/server/public_api.hpp"

#include <algorithm>
#include <array>

#include "router/proxy/http_errors.hpp"
#include "router/server/cors_writer.hpp"

namespace penstock::router {
namespace {

namespace asio = boost::asio;

struct Route {
  std::string_view path;
  std::string_view method;
};
constexpr std::array<Route, 12> routes{{{"/v1/chat/completions", "POST"},
                                        {"/v1/completions", "POST"},
                                        {"/v1/messages", "POST"},
                                        {"/v1/messages/count_tokens", "POST"},
                                        {"/v1/models", "GET"},
                                        {"/tokenize", "POST"},
                                        {"/detokenize", "POST"},
                                        {"/health", "GET"},
                                        {"/live", "GET"},
                                        {"/ping", "GET"},
                                        {"/load", "GET"},
                                        {"/version", "GET"}}};

// Parts of their APIs that are not here; said by name, so that nobody looks for a typing error.
constexpr std::array<std::string_view, 13> absent{
    "/v1/embeddings", "/v1/responses",   "/v1/audio",      "/v1/images",  "/v1/files",
    "/v1/batches",    "/v1/moderations", "/v1/assistants", "/v1/threads", "/v1/fine_tuning",
    "/v1/realtime",   "/v1/rerank",      "/v1/uploads"};

http::Response api_error(const http::Request& request, int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = std::move(code);
  error.message = std::move(message);
  if (status == 401) error.type = "authentication_error";
  if (status >= 500) error.type = "server_error";
  return to_response(error, request.path);
}

bool is_local_host(std::string_view host) {
  const bool is_v6 = host.starts_with('[');
  const std::string_view name = is_v6 ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
  return name == "localhost" || name == "[::1]" || name.starts_with("127.") || name.ends_with(".localhost");
}

/// The paths that the probes of vLLM, Dynamo and SageMaker ask. They need no key.
bool is_probe(const http::Request& request) {
  const bool is_path = request.path == "/health" || request.path == "/live" || request.path == "/ping";
  return is_path && request.method != "POST";
}

std::optional<http::Response> wrong_path(const http::Request& request) {
  for (std::string_view path : absent) {
    if (request.path == path || request.path.starts_with(std::string(path) + "/")) {
      return api_error(request, 501, "not_implemented", std::string(path) + " is not implemented here.");
    }
  }
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  std::string_view allowed;
  for (const auto& route : routes) {
    if (route.path == request.path) allowed = route.method;
  }
  if (request.path.starts_with("/v1/models/") && request.path.size() > 11) allowed = "GET";
  if (allowed.empty()) return api_error(request, 404, "not_found", "There is nothing at this path.");
  if (allowed == request.method || (allowed == "GET" && is_get)) return std::nullopt;
  http::Response response =
      api_error(request, 405, "method_not_allowed", "This path takes " + std::string(allowed) + " only.");
  response.headers.set("allow", allowed);
  return response;
}

}  // namespace

PublicApi::PublicApi(Proxy& proxy, ModelRegistry& registry, TenantLimiter& tenants, asio::thread_pool& workshop,
                     const Clock& clock, PublicApiSettings settings)
    : proxy_(proxy),
      registry_(registry),
      tenants_(tenants),
      workshop_(workshop),
      clock_(clock),
      settings_(std::move(settings)) {}

void PublicApi::set_keys(ApiKeys keys) {
  keys.for_each([&](const ApiKey& key) { tenants_.set(key.tenant, key.limits); });
  keys_ = std::move(keys);
}

http::Handler PublicApi::handler() {
  return [this](http::Request request, http::ResponseWriter& writer) { return handle(std::move(request), writer); };
}

asio::awaitable<void> PublicApi::handle(http::Request request, http::ResponseWriter& writer) {
  const std::string origin = allowed_origin(request);
  if (origin.empty()) {
    Caller caller;
    auto answer = answer_at_once(request, caller);
    if (answer) {
      (void)co_await writer.send(std::move(*answer));
      co_return;
    }
    co_return co_await route(std::move(request), writer, std::move(caller));
  }
  CorsWriter with_cors(writer, origin);
  Caller caller;
  auto answer = answer_at_once(request, caller);
  if (answer) {
    (void)co_await with_cors.send(std::move(*answer));
    co_return;
  }
  co_await route(std::move(request), with_cors, std::move(caller));
}

std::optional<http::Response> PublicApi::answer_at_once(const http::Request& request, Caller& caller) {
  const auto host = request.headers.find("host");
  if (settings_.is_local && host && !is_local_host(*host)) {
    return api_error(request, 403, "host_not_allowed", "This server answers to local host names only.");
  }
  if (auto early = preflight(request)) return early;
  if (is_probe(request)) {
    return is_draining_ ? api_error(request, 503, "draining", "The server is shutting down.") : http::Response{};
  }
  // vLLM's, asked by balancers and scalers, which have no key.
  if (request.path == "/load" && request.method == "GET") {
    return http::json_response(200, "{\"server_load\":" + std::to_string(proxy_.active()) + "}");
  }
  if (auto refused = check_caller(request, caller)) return refused;
  if (auto wrong = wrong_path(request)) return wrong;
  if (is_draining_ && request.method == "POST") {
    http::Response response =
        to_response(no_capacity("The server is shutting down.", std::chrono::seconds(1)), request.path);
    response.headers.set("connection", "close");
    return response;
  }
  return std::nullopt;
}

std::optional<http::Response> PublicApi::check_caller(const http::Request& request, Caller& caller) const {
  if (!keys_) return std::nullopt;
  const ApiKey* key = keys_->find(request.headers);
  if (key == nullptr) {
    http::Response response = api_error(request, 401, "invalid_api_key", "A valid API key is needed.");
    response.headers.set("www-authenticate", "Bearer");
    return response;
  }
  caller.tenant = key->tenant;
  caller.salt = key->tenant;
  return std::nullopt;
}

std::string PublicApi::allowed_origin(const http::Request& request) const {
  if (settings_.cors_origins.empty()) return {};
  const auto origin = request.headers.find("origin");
  if (!origin) return {};
  for (const auto& allowed : settings_.cors_origins) {
    if (allowed == "*") return "*";
    if (allowed == *origin) return allowed;
  }
  return {};
}

std::optional<http::Response> PublicApi::preflight(const http::Request& request) const {
  if (request.method != "OPTIONS" || allowed_origin(request).empty()) return std::nullopt;
  http::Response response;
  response.status = 204;
  response.headers.set("access-control-allow-methods", "GET, POST, OPTIONS");
  const auto wanted = request.headers.find("access-control-request-headers");
  response.headers.set("access-control-allow-headers", wanted.value_or("authorization, content-type"));
  response.headers.set("access-control-max-age", "600");
  return response;
}

asio::awaitable<void> PublicApi::route(http::Request request, http::ResponseWriter& writer, Caller caller) {
  if (request.path == "/v1/chat/completions") {
    co_return co_await proxy_.serve(Endpoint::chat, std::move(request), writer, std::move(caller));
  }
  if (request.path == "/v1/completions") {
    co_return co_await proxy_.serve(Endpoint::completions, std::move(request), writer, std::move(caller));
  }
  if (request.path == "/v1/messages") {
    co_return co_await proxy_.serve(Endpoint::messages, std::move(request), writer, std::move(caller));
  }
  http::Response response;
  if (request.path == "/v1/models") {
    response = list_models();
  } else if (request.path.starts_with("/v1/models/")) {
    response = one_model(std::string_view(request.path).substr(11));
  } else if (request.path == "/v1/messages/count_tokens") {
    response = co_await answer_text(count_tokens, std::move(request), std::move(caller));
  } else if (request.path == "/tokenize") {
    response = co_await answer_text(tokenize, std::move(request), std::move(caller));
  } else if (request.path == "/detokenize") {
    response = co_await answer_text(detokenize, std::move(request), std::move(caller));
  } else {
    response = http::json_response(200, "{\"version\":\"" + settings_.version + "\"}");
  }
  (void)co_await writer.send(std::move(response));
}

}  // namespace penstock::router
