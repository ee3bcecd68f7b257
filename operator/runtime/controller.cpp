#include "operator/runtime/controller.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <set>
#include <unordered_map>

#include "common/async/task_group.hpp"

namespace penstock::ctl {

namespace asio = boost::asio;

ControllerProbe make_controller_probe(metrics::Registry& registry, const std::string& controller) {
  const metrics::Labels labels{{"controller", controller}};
  return {
      registry.counter("penstock_operator_reconciles_total", "Reconciles that were run.", labels),
      registry.counter("penstock_operator_reconcile_failures_total", "Reconciles whose write was refused.", labels),
      registry.counter("penstock_operator_conflicts_total", "Writes that another writer was faster than.", labels),
      registry.counter("penstock_operator_writes_total", "Writes that were carried out.", labels),
      registry.histogram("penstock_operator_reconcile_seconds", "Time of a reconcile, its writes included.",
                         {0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}, labels),
      registry.gauge("penstock_operator_queue_length", "Keys that wait for a reconcile.", labels),
      registry.gauge("penstock_operator_queue_oldest_seconds", "How long the key that waits longest has done so.",
                     labels),
  };
}

namespace {

const kube::ResourceType* type_of(const kube::Write& write) {
  return std::visit(
      [](const auto& one) -> const kube::ResourceType* {
        if constexpr (requires { one.type.plural; }) return &one.type;
        return nullptr;
      },
      write);
}

using IdleTimers = std::set<asio::steady_timer*>;

/// Keeps a worker's timer where it can be found as long as it waits.
class Idle {
 public:
  Idle(IdleTimers& timers, asio::steady_timer& timer) : timers_(timers), timer_(&timer) { timers_.insert(timer_); }
  ~Idle() { timers_.erase(timer_); }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;

 private:
  IdleTimers& timers_;
  asio::steady_timer* timer_;
};

std::string namespace_of(const kube::Write& write) {
  return std::visit(
      [](const auto& one) -> std::string {
        if constexpr (requires { one.namespace_; }) return one.namespace_;
        if constexpr (requires { one.key.namespace_; }) return one.key.namespace_;
        return {};
      },
      write);
}

bool is_dry_run(const kube::Write& write) {
  const auto* create = std::get_if<kube::Create>(&write);
  return create != nullptr && create->dry_run == kube::DryRun::yes;
}

/// A refusal that is as good as done: it is there already, or gone already. The next reconcile sees which. A full quota
/// says nothing about what was tried.
bool is_harmless(const kube::Write& write, const kube::ApiStatus& status) {
  if (is_dry_run(write) && kube::is_quota(status)) return true;
  if (std::holds_alternative<kube::Create>(write)) return status.is(kube::Failure::already_exists);
  if (std::holds_alternative<kube::Delete>(write) || std::holds_alternative<kube::ApplyStatus>(write)) {
    return status.is(kube::Failure::not_found);
  }
  return false;
}

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

struct Controller::Impl {
  Impl(asio::any_io_executor on, ControllerOptions settings, Reconcile pure, UidOf uid, Writer& to,
       const CacheView& view, const Clock& time, ControllerProbe made, log::Logger log)
      : executor(std::move(on)),
        options(std::move(settings)),
        reconcile(std::move(pure)),
        uid_of(std::move(uid)),
        writer(to),
        caches(view),
        clock(time),
        probe(std::move(made)),
        logger(std::move(log)),
        queue(options.seed, {}, options.rest),
        tasks(executor, [this](std::string_view, std::string_view what) {
          logger.error("controller worker failed", {{"controller", options.name}, {"reason", what}});
        }) {}

  /// One worker at a time: who takes a key wakes the next, so that whoever sleeps knows the next due time.
  void wake_one() {
    if (idle.empty()) return;
    asio::steady_timer* timer = *idle.begin();
    idle.erase(idle.begin());
    timer->cancel();
  }
  void wake_all() {
    while (!idle.empty()) wake_one();
  }

  asio::awaitable<void> worker() {
    while (!stopping) {
      const auto key = queue.take(clock.now());
      if (!key) {
        co_await wait();
        continue;
      }
      wake_one();
      ++running;
      const std::optional<Duration> rest = co_await work_on(*key);
      --running;
      queue.done(*key, clock.now(), rest);
    }
  }

  /// Until a key is added or one falls due.
  asio::awaitable<void> wait() {
    const auto due = queue.next_due();
    asio::steady_timer timer(executor, due.value_or(TimePoint::max()));
    const Idle entry(idle, timer);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  /// Gives how long the key is to rest.
  asio::awaitable<std::optional<Duration>> work_on(const kube::Key& key) {
    const TimePoint start = clock.now();
    const std::string uid = uid_of(key);
    if (!writer.may_write()) co_return std::nullopt;  // whoever leads next starts from everything
    if (!uid.empty() && !expectations.are_met(uid, caches, start)) {
      queue.add_at(key, start + options.barrier_poll);
      co_return std::nullopt;
    }
    std::optional<WriteFailure> last;
    if (auto found = failures.find(key); found != failures.end()) last = found->second;
    const Outcome outcome = reconcile(key, last);
    const auto failure = co_await carry_out(uid, outcome);
    probe.reconciles.increment();
    probe.seconds.observe(seconds(clock.now() - start));
    if (uid.empty()) expectations.forget(uid);
    if (!failure) {
      failures.erase(key);
      queue.forget_failures(key);
      if (outcome.requeue_after) queue.add_at(key, clock.now() + *outcome.requeue_after);
      co_return outcome.rest;
    }
    failures[key] = *failure;
    const kube::ApiStatus& status = failure->status;
    const TimePoint due = queue.add_after_failure(key, clock.now());
    if (status.is(kube::Failure::conflict)) {
      probe.conflicts.increment();
      co_return outcome.rest;
    }
    probe.failures.increment();
    logger.warn("reconcile failed",
                {{"controller", options.name},
                 {"object", to_string(key)},
                 {"reason", kube::to_string(status)},
                 {"retry_ms", std::chrono::duration_cast<std::chrono::milliseconds>(due - clock.now()).count()}});
    co_return outcome.rest;
  }

  /// The first refusal, if any.
  asio::awaitable<std::optional<WriteFailure>> carry_out(const std::string& uid, const Outcome& outcome) {
    for (const kube::Write& write : outcome.writes) {
      if (!writer.may_write()) co_return std::nullopt;
      auto answer = co_await writer.write(write);
      if (!answer) {
        if (is_harmless(write, answer.error())) continue;
        if (answer.error().is(kube::Failure::no_answer)) co_await expect_the_lost(uid, write);
        logger.debug("write refused", {{"write", kube::describe(write)}, {"reason", kube::to_string(answer.error())}});
        WriteFailure failure{answer.error(), is_dry_run(write)};
        co_return failure;
      }
      probe.writes.increment();
      expect(uid, write, *answer);
    }
    co_return std::nullopt;
  }

  /// A write without an answer may have been carried out: the next reconcile must not act before its effect would show.
  asio::awaitable<void> expect_the_lost(const std::string& uid, const kube::Write& write) {
    const kube::ResourceType* type = type_of(write);
    if (uid.empty() || type == nullptr) co_return;
    const auto version = co_await writer.newest_version(*type, namespace_of(write));
    if (version) expectations.on_written(uid, type_name(*type), *version, clock.now());
  }

  void expect(const std::string& uid, const kube::Write& write, const json::Value& answer) {
    const kube::ResourceType* type = type_of(write);
    if (uid.empty() || type == nullptr || !answer.is_object() || is_dry_run(write)) return;
    if (const auto* deletion = std::get_if<kube::Delete>(&write)) {
      if (!deletion->preconditions.uid.empty()) {
        expectations.on_deleted(uid, type_name(*type), deletion->preconditions.uid, clock.now());
      }
      return;
    }
    const auto version = kube::text_at(answer.as_object(), {"metadata", "resourceVersion"});
    if (version) expectations.on_written(uid, type_name(*type), kube::parse_version(*version), clock.now());
  }

  asio::any_io_executor executor;
  ControllerOptions options;
  Reconcile reconcile;
  UidOf uid_of;
  Writer& writer;
  const CacheView& caches;
  const Clock& clock;
  ControllerProbe probe;
  log::Logger logger;
  WorkQueue queue;
  Expectations expectations;
  std::unordered_map<kube::Key, WriteFailure> failures;
  IdleTimers idle;  // a worker each
  unsigned running = 0;
  bool stopping = false;
  async::TaskGroup tasks;
};

Controller::Controller(asio::any_io_executor executor, ControllerOptions options, Reconcile reconcile, UidOf uid_of,
                       Writer& writer, const CacheView& caches, const Clock& clock, ControllerProbe probe,
                       log::Logger logger)
    : impl_(std::make_unique<Impl>(std::move(executor), std::move(options), std::move(reconcile), std::move(uid_of),
                                   writer, caches, clock, std::move(probe), std::move(logger))) {}

Controller::~Controller() = default;

void Controller::add(const kube::Key& key, Priority priority) {
  impl_->queue.add(key, priority, impl_->clock.now());
  impl_->wake_one();
}

void Controller::start() {
  for (unsigned i = 0; i < impl_->options.workers; ++i) impl_->tasks.spawn("controller worker", impl_->worker());
}

asio::awaitable<void> Controller::stop(Duration grace) {
  impl_->stopping = true;
  impl_->wake_all();
  co_await impl_->tasks.drain(grace);
}

bool Controller::is_idle() const {
  return impl_->running == 0 && impl_->queue.waiting() == 0;
}

void Controller::update_gauges() {
  impl_->probe.queued.set(static_cast<double>(impl_->queue.waiting()));
  impl_->probe.oldest_seconds.set(seconds(impl_->queue.oldest(impl_->clock.now())));
}

}  // namespace penstock::ctl
