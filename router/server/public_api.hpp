// The public API: which paths there are, who may use them, from which web pages. One Handler for common/http's server.
// Thread: the router's I/O thread. The route table is fixed at start; keys are swapped whole.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/routes.hpp"
#include "common/http/server.hpp"
#include "router/proxy/proxy.hpp"
#include "router/server/api_keys.hpp"

namespace penstock::router {

struct PublicApiSettings {
  std::vector<std::string> cors_origins;  // "*" is any; empty: no CORS headers
  bool is_local = true;                   // only Host names of this machine are served, against DNS rebinding
  std::string version;
  ApiLimits api;
};

class PublicApi {
 public:
  PublicApi(Proxy& proxy, ModelRegistry& registry, TenantLimiter& tenants, PublicApiSettings settings);

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
  http::Response tokenize(const http::Request& request);
  http::Response detokenize(const http::Request& request);
  ServedModel* model_of(std::optional<std::string_view> name) const;

  Proxy& proxy_;
  ModelRegistry& registry_;
  TenantLimiter& tenants_;
  PublicApiSettings settings_;
  std::optional<ApiKeys> keys_;
  bool is_draining_ = false;
};

}  // namespace penstock::router
