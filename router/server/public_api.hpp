// The public API: which paths there are, who may use them, from which web pages. One Handler for common/http's server.
// Thread: the router's I/O thread. The route table is fixed at start; keys are swapped whole.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/routes.hpp"
#include "common/http/server.hpp"
#include "common/json/json.hpp"
#include "router/proxy/proxy.hpp"
#include "router/server/api_keys.hpp"

namespace penstock::router {

struct PublicApiSettings {
  std::vector<std::string> cors_origins;  // "*" is any; empty: no CORS headers
  bool is_local = true;                   // only Host names of this machine are served, against DNS rebinding
  std::string version;
  ApiLimits api;
  std::size_t inline_bytes_max = 16 << 10;  // texts of longer bodies are tokenised in the workshop
};

class PublicApi {
 public:
  PublicApi(Proxy& proxy, ModelRegistry& registry, TenantLimiter& tenants, boost::asio::thread_pool& workshop,
            const Clock& clock, PublicApiSettings settings);

  /// From now on only these keys are let in.
  void set_keys(ApiKeys keys);
  /// New calls are told to come back; those that run go on.
  void drain() { is_draining_ = true; }
  bool is_draining() const { return is_draining_; }
  http::Handler handler();

 private:
  boost::asio::awaitable<void> handle(http::Request request, http::ResponseWriter& writer);
  boost::asio::awaitable<void> route(http::Request request, http::ResponseWriter& writer, Caller caller);
  std::optional<http::Response> answer_at_once(const http::Request& request, Caller& caller);
  std::optional<http::Response> check_caller(const http::Request& request, Caller& caller) const;
  std::optional<http::Response> preflight(const http::Request& request) const;
  std::string allowed_origin(const http::Request& request) const;
  http::Response list_models() const;
  http::Response one_model(std::string_view name) const;
  /// A JSON text.
  using TextAnswer = ApiResult<std::string> (*)(const json::Object& body, const ModelText& model,
                                                const ApiLimits& limits);
  static ApiResult<std::string> tokenize(const json::Object& body, const ModelText& model, const ApiLimits& limits);
  static ApiResult<std::string> detokenize(const json::Object& body, const ModelText& model, const ApiLimits& limits);
  static ApiResult<std::string> count_tokens(const json::Object& body, const ModelText& model, const ApiLimits& limits);
  boost::asio::awaitable<http::Response> answer_text(TextAnswer answer, http::Request request, Caller caller);
  ServedModel* model_of(std::optional<std::string_view> name) const;

  Proxy& proxy_;
  ModelRegistry& registry_;
  TenantLimiter& tenants_;
  boost::asio::thread_pool& workshop_;
  const Clock& clock_;
  PublicApiSettings settings_;
  std::optional<ApiKeys> keys_;
  bool is_draining_ = false;
};

}  // namespace penstock::router
