#include "common/http/admin.hpp"

#include "common/json/writer.hpp"

namespace penstock::http {
namespace {

using Page = std::function<Response(const Request&)>;

asio::awaitable<void> answer(Response response, ResponseWriter& writer) {
  (void)co_await writer.send(std::move(response));  // an error means that the client has gone
}

void add_page(Routes& routes, std::string_view path, Page page) {
  routes.add("GET", path, [page = std::move(page)](const Request& request, ResponseWriter& writer) {
    return answer(page(request), writer);
  });
}

Response readiness(const std::vector<std::string>& reasons) {
  std::string body;
  json::Writer writer(body);
  writer.begin_object();
  writer.field("ready", reasons.empty());
  writer.key("reasons");
  writer.begin_array();
  for (const std::string& reason : reasons) writer.value(reason);
  writer.end_array();
  writer.end_object();
  return json_response(reasons.empty() ? 200 : 503, std::move(body));
}

}  // namespace

void add_admin_routes(Routes& routes, AdminOptions options) {
  add_page(routes, "/healthz", [](const Request&) { return text_response(200, "ok\n"); });
  if (options.registry != nullptr) {
    add_page(routes, "/metrics", [registry = options.registry](const Request&) {
      return Response{200, {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}}, registry->expose()};
    });
  }
  add_page(routes, "/readyz", [reasons = std::move(options.not_ready_reasons)](const Request&) {
    return readiness(reasons ? reasons() : std::vector<std::string>());
  });
  add_page(routes, "/config", [yaml = std::move(options.config_yaml)](const Request&) {
    return Response{200, {{"content-type", "application/yaml"}}, yaml};
  });
}

void add_json_page(Routes& routes, std::string_view path, std::function<std::string(const Request&)> make) {
  add_page(routes, path,
           [make = std::move(make)](const Request& request) { return json_response(200, make(request)); });
}

}  // namespace penstock::http
