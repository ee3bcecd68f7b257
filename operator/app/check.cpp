#include "operator/app/check.hpp"

#include <charconv>

#include "common/async/deadline.hpp"
#include "common/http/client.hpp"

namespace penstock::ctl {

boost::asio::awaitable<Result<std::string>> check_ready(std::string address, Duration timeout) {
  http::ClientOptions options;
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) co_return make_error(ErrorCode::invalid_argument, address + " is not HOST:PORT");
  options.host = address.substr(0, colon);
  const char* end = address.data() + address.size();
  if (std::from_chars(address.data() + colon + 1, end, options.port).ptr != end) {
    co_return make_error(ErrorCode::invalid_argument, address + " is not HOST:PORT");
  }
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  std::string last = "no answer";
  do {
    http::Client client(options);
    http::ClientRequest request("GET", "/readyz");
    auto answer = co_await client.request(std::move(request), std::chrono::seconds(5));
    if (answer && answer->status == 200) co_return answer->body;
    last = answer ? answer->body : answer.error().message;
    co_await async::pause(std::chrono::milliseconds(500));
  } while (clock.now() < deadline);
  co_return make_error(ErrorCode::unavailable, address + " is not ready: " + last);
}

}  // namespace penstock::ctl
