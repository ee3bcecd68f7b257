// Exact paths and methods to handlers. Unknown path: 404; known path, other method: 405 with Allow. HEAD is served by
// the handler of GET (the server drops the body). Filled at start, then const.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/http/server.hpp"

namespace penstock::http {

class Routes {
 public:
  void add(std::string_view method, std::string_view path, Handler handler);
  /// The routes as one handler. Refers to this object.
  Handler handler() const;

 private:
  std::map<std::string, std::map<std::string, Handler, std::less<>>, std::less<>> routes_;  // path, then method
};

/// Refuses bodies that are not JSON by their content type: nullopt if fine, else 415.
std::optional<ApiError> require_json(const Request& request);

}  // namespace penstock::http
