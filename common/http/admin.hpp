// The admin port of every program: /metrics, /healthz, /readyz, /config, and what the program adds under /debug.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/http/routes.hpp"
#include "common/metrics/metrics.hpp"

namespace penstock::http {

struct AdminOptions {
  metrics::Registry* registry = nullptr;                        // outlives the routes
  std::function<std::vector<std::string>()> not_ready_reasons;  // empty list: ready
  std::string config_yaml;                                      // secrets redacted
};

/// Adds the admin routes. `/readyz` gives 200 {"ready":true} or 503 with the reasons.
void add_admin_routes(Routes& routes, AdminOptions options);

/// Adds GET `path` that answers with what `make` returns (JSON text), for debug pages. `make` gets the request.
void add_json_page(Routes& routes, std::string_view path, std::function<std::string(const Request&)> make);

}  // namespace penstock::http
