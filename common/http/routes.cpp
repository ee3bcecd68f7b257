#include "common/http/routes.hpp"

#include "common/base/check.hpp"

namespace penstock::http {
namespace {

asio::awaitable<void> answer(ResponseWriter& writer, Response response) {
  (void)co_await writer.send(std::move(response));  // an error means that the client has gone
}

Response not_found(const Request& request) {
  ApiError error;
  error.status = 404;
  error.message = "unknown path " + request.path.substr(0, 128);
  error.code = "not_found";
  return to_response(error);
}

Response method_not_allowed(const std::string& allowed) {
  ApiError error;
  error.status = 405;
  error.message = "this path takes " + allowed;
  error.code = "method_not_allowed";
  Response response = to_response(error);
  response.headers.add("allow", allowed);
  return response;
}

}  // namespace

void Routes::add(std::string_view method, std::string_view path, Handler handler) {
  const bool added = routes_[std::string(path)].emplace(std::string(method), std::move(handler)).second;
  PENSTOCK_CHECK(added, "route added twice", path);
}

Handler Routes::handler() const {
  return [this](Request request, ResponseWriter& writer) -> asio::awaitable<void> {
    const auto path = routes_.find(request.path);
    if (path == routes_.end()) return answer(writer, not_found(request));
    const auto& methods = path->second;
    const auto method =
        methods.find(request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method));
    if (method != methods.end()) return method->second(std::move(request), writer);
    std::string allowed;
    for (const auto& [name, handler] : methods) allowed += (allowed.empty() ? "" : ", ") + name;
    return answer(writer, method_not_allowed(allowed));
  };
}

std::optional<ApiError> require_json(const Request& request) {
  const std::string_view given = request.headers.find("content-type").value_or("");
  const std::string_view type = given.substr(0, given.find_first_of("; "));
  const bool utf8 = given.find("charset") == std::string_view::npos || given.find("utf-8") != std::string_view::npos ||
                    given.find("UTF-8") != std::string_view::npos;
  if (equal_names(type, "application/json") && utf8) return std::nullopt;
  ApiError error;
  error.status = 415;
  error.message = "the content type must be application/json";
  error.code = "unsupported_media_type";
  return error;
}

}  // namespace penstock::http
