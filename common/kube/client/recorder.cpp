#include "common/kube/client/recorder.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <utility>

#include "common/time/wall_clock.hpp"

namespace penstock::kube {
namespace {

constexpr Duration flush_every = std::chrono::seconds(10);

}  // namespace

struct Recorder::Impl {
  Impl(asio::any_io_executor executor, Client& client_, EventOptions options, std::uint64_t seed, log::Logger logger_)
      : client(client_), series(std::move(options), seed), logger(std::move(logger_)), timer(std::move(executor)) {}

  void push(Write write) {
    if (queue.size() >= queue_max) {
      client.probe().events_dropped.increment();
      return;
    }
    queue.push_back(std::move(write));
  }

  Client& client;
  EventSeries series;
  log::Logger logger;
  std::deque<Write> queue;
  asio::steady_timer timer;  // cancelled when there is something to write
};

Recorder::Recorder(asio::any_io_executor executor, Client& client, EventOptions options, std::uint64_t seed,
                   log::Logger logger)
    : impl_(std::make_unique<Impl>(std::move(executor), client, std::move(options), seed, std::move(logger))) {}
Recorder::~Recorder() = default;

void Recorder::emit(const EmitEvent& event) {
  Impl& impl = *impl_;
  const WallTime wall = wall_now();
  const std::size_t dropped = impl.series.dropped();
  std::optional<Write> write =
      impl.series.record(event, SteadyClock().now(), {wall.unix_s * 1'000'000 + wall.milliseconds * 1'000});
  if (impl.series.dropped() > dropped) impl.client.probe().events_dropped.increment();
  if (!write) return;
  impl.push(std::move(*write));
  impl.timer.cancel();
}

asio::awaitable<void> Recorder::run() {
  Impl& impl = *impl_;
  const SteadyClock clock;
  TimePoint flush_at = clock.now() + flush_every;
  while (true) {
    if (clock.now() >= flush_at) {
      for (Write& write : impl.series.due(clock.now())) impl.push(std::move(write));
      flush_at = clock.now() + flush_every;
    }
    if (impl.queue.empty()) {
      impl.timer.expires_at(flush_at);
      co_await impl.timer.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    const Write write = std::move(impl.queue.front());
    impl.queue.pop_front();
    const ApiResult<json::Value> done = co_await impl.client.execute(write);
    if (!done) impl.logger.debug("event not written", {{"error", to_string(done.error())}});
  }
}

asio::awaitable<ApiResult<json::Value>> execute(Client& client, Recorder& recorder, const Write& write,
                                                DryRun dry_run) {
  if (const auto* event = std::get_if<EmitEvent>(&write)) {
    if (dry_run == DryRun::no) recorder.emit(*event);
    co_return json::Value(nullptr);
  }
  co_return co_await client.execute(write, dry_run);
}

}  // namespace penstock::kube
