#include "common/kube/client/watch_loop.hpp"

#include <algorithm>

#include "common/async/deadline.hpp"

namespace penstock::kube {
namespace {

constexpr Duration head_timeout_max = std::chrono::seconds(30);

asio::awaitable<void> follow(Client& client, const std::string& path, const WatchRequest& request,
                             Reflector& reflector) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + request.timeout;
  const std::string_view verb = request.kind == RequestKind::watch ? "watch" : "list";
  std::string target = path + "?" + request.query;
  auto opened = co_await client.open(verb, std::move(target), std::min(request.timeout, head_timeout_max));
  if (!opened) {
    reflector.on_failed(opened.error(), clock.now());
    co_return;
  }
  const std::unique_ptr<ContentStream> content = std::move(*opened);
  while (true) {
    const Duration left = deadline - clock.now();
    // Only a streamed list may not be silent: a watch has nothing to say while nothing changes.
    const bool impatient = reflector.machine().staging() && request.silence_max < left;
    Result<std::string> bytes = co_await content->read(impatient ? request.silence_max : left);
    const TimePoint now = clock.now();
    if (bytes) {
      if (bytes->empty()) {
        reflector.on_end(StreamEnd::closed, now);
        co_return;
      }
      if (!reflector.on_bytes(*bytes, now)) co_return;
      continue;
    }
    if (bytes.error().code != ErrorCode::deadline_exceeded) {
      reflector.on_end(StreamEnd::broken, now);
    } else {
      reflector.on_end(impatient ? StreamEnd::silent : StreamEnd::overdue, now);
    }
    co_return;
  }
}

}  // namespace

asio::awaitable<void> run_reflector(Client& client, std::string path, Reflector& reflector) {
  const SteadyClock clock;
  while (true) {
    const TimePoint now = clock.now();
    const WatchStep step = reflector.next(now);
    if (const auto* wait = std::get_if<WaitUntil>(&step)) {
      co_await async::pause(wait->time - now);
    } else {
      co_await follow(client, path, std::get<WatchRequest>(step), reflector);
    }
  }
}

}  // namespace penstock::kube
