// Reads what routers and leading workers of services that scale by SLO say of themselves, every few seconds, and keeps
// the figures that the planner wants: latencies, queues, KV use, demand, and what a group does within the SLO; and of
// services with TLS when their certificates end, which the operator may not read itself. Thread:
// the operator's I/O thread. Bounded: one page of one pod at a time.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/kube/model/key.hpp"
#include "common/log/logger.hpp"
#include "common/time/clock.hpp"
#include "operator/core/context.hpp"
#include "operator/core/metrics_text.hpp"
#include "operator/reconcilers/stores.hpp"

namespace penstock::ctl {

class Figures {
 public:
  static constexpr Duration interval = std::chrono::seconds(15);

  Figures(const Stores& stores, const Clock& clock, log::Logger logger)
      : stores_(stores), clock_(clock), logger_(std::move(logger)) {}

  /// Never returns; ends by cancellation.
  boost::asio::awaitable<void> run();
  /// Null until two readings have been taken of that service.
  const ServiceFigures* of(const kube::Key& service) const;
  /// The earliest end of a TLS certificate that a router of the service presents; nothing before it is known.
  std::optional<std::int64_t> certificate_end_s(const kube::Key& service) const;
  /// Told when an end that is known changes.
  std::function<void(const kube::Key& service)> on_certificate;

 private:
  struct Memory {
    MetricsReading routers;  // the last reading
    TimePoint at{};
    ServiceFigures figures;
    bool is_known = false;
  };

  boost::asio::awaitable<void> look_at(kube::Key key);
  boost::asio::awaitable<void> look_at_certificates(kube::Key key);
  boost::asio::awaitable<bool> add_page_of(std::string ip, std::string prefix, MetricsReading& reading);
  boost::asio::awaitable<void> look_at_role(const kube::Key& service, const std::string& role, double latency_ms,
                                            std::vector<GroupLoad>& loads);

  const Stores& stores_;
  const Clock& clock_;
  log::Logger logger_;
  std::map<kube::Key, Memory> services_;
  std::map<kube::Key, std::int64_t> certificates_;  // of services with TLS
};

}  // namespace penstock::ctl
