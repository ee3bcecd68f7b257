#include "common/kube/client/leader_elector.hpp"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "common/kube/model/known_types.hpp"
#include "common/time/wall_clock.hpp"

namespace penstock::kube {
namespace {

Timestamp wall_timestamp() {
  const WallTime wall = wall_now();
  return {wall.unix_s * 1'000'000 + wall.milliseconds * 1'000};
}

WriteRequest to_request(const LeaseRequest& request, const Key& key) {
  switch (request.call) {
    case LeaseRequest::Call::get:
      return {"get", "GET", leases.path(key), "", ""};
    case LeaseRequest::Call::create:
      return {"create", "POST", leases.path(key.namespace_), "application/json", boost::json::serialize(request.body)};
    case LeaseRequest::Call::update:
      return {"update", "PUT", leases.path(key), "application/json", boost::json::serialize(request.body)};
  }
  return {};
}

ClientOptions few_connections(ClientOptions options) {
  options.connections_max = 1;
  return options;
}

}  // namespace

struct LeaderElector::Impl {
  Impl(asio::any_io_executor executor, const Client& like, LeaseOptions options, std::uint64_t seed,
       Callbacks callbacks_, log::Logger logger_, metrics::Gauge gauge_)
      : client(executor, like.config(), few_connections(like.options()), like.probe(), logger_),
        key(options.key),
        machine(std::move(options), seed),
        callbacks(std::move(callbacks_)),
        logger(std::move(logger_)),
        gauge(gauge_),
        timer(std::move(executor)) {}

  /// Tells of the change, once.
  void report(TimePoint now) {
    const bool leads = machine.leading(now);
    if (leads == reported) return;
    reported = leads;
    gauge.set(leads ? 1 : 0);
    logger.info(leads ? std::string_view("leading") : std::string_view("not leading any more"),
                {{"lease", to_string(key)}, {"holder", machine.holder()}});
    const auto& callback = leads ? callbacks.on_started : callbacks.on_stopped;
    if (callback) callback();
  }

  /// Until the time, or until leadership ends by the clock, or release().
  asio::awaitable<void> wait(TimePoint until) {
    if (const auto end = machine.leading_until(); end && reported) until = std::min(until, *end);
    timer.expires_at(until);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }

  Client client;  // its own: a renewal must not wait behind the work of who leads
  Key key;
  LeaseMachine machine;
  Callbacks callbacks;
  log::Logger logger;
  metrics::Gauge gauge;
  asio::steady_timer timer;
  bool reported = false;
};

LeaderElector::LeaderElector(asio::any_io_executor executor, Client& client, LeaseOptions options, std::uint64_t seed,
                             Callbacks callbacks, log::Logger logger, metrics::Gauge leading)
    : impl_(std::make_unique<Impl>(std::move(executor), client, std::move(options), seed, std::move(callbacks),
                                   std::move(logger), leading)) {}
LeaderElector::~LeaderElector() = default;

bool LeaderElector::leading() const {
  return impl_->machine.leading(SteadyClock().now());
}
std::string LeaderElector::holder() const {
  return impl_->machine.holder();
}

void LeaderElector::release() {
  impl_->machine.release();
  impl_->report(SteadyClock().now());
  impl_->timer.cancel();
}

asio::awaitable<void> LeaderElector::run() {
  Impl& impl = *impl_;
  const SteadyClock clock;
  while (true) {
    impl.report(clock.now());
    const LeaseStep step = impl.machine.next(clock.now(), wall_timestamp());
    if (std::holds_alternative<LeaseDone>(step)) break;
    if (const auto* wait = std::get_if<LeaseWait>(&step)) {
      co_await impl.wait(wait->until);
      continue;
    }
    const LeaseRequest& request = std::get<LeaseRequest>(step);
    const WriteRequest call = to_request(request, impl.key);
    const ApiResult<json::Value> answer = co_await impl.client.call(call, request.timeout);
    impl.machine.on_answer(answer, clock.now());
    if (!answer && !answer.error().is(Failure::not_found) && !answer.error().is(Failure::conflict)) {
      impl.logger.warn("lease call failed", {{"lease", to_string(impl.key)}, {"error", to_string(answer.error())}});
    }
  }
  impl.report(clock.now());
}

}  // namespace penstock::kube
