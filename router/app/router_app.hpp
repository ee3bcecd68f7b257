// The router as an object: builds all parts from a config, runs them on one I/O thread, stops them in order. main() and
// the integration tests use it. Thread: that of `io`. Nothing in it outlives stop().
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/log/logger.hpp"
#include "router/app/config.hpp"

namespace penstock::router {

class RouterApp {
 public:
  /// Throws std::runtime_error with one sentence if a key or certificate file is unusable.
  RouterApp(boost::asio::io_context& io, RouterConfig config, log::Logger logger);
  ~RouterApp();
  RouterApp(const RouterApp&) = delete;
  RouterApp& operator=(const RouterApp&) = delete;

  /// Binds both ports and begins to connect to workers. The error is one sentence.
  Result<void> start();
  /// Readiness off, new calls refused, streams may go on for the grace, then all ends.
  boost::asio::awaitable<void> drain();
  std::uint16_t port() const;
  std::uint16_t admin_port() const;
  /// Why /readyz is not green; empty if it is.
  std::vector<std::string> not_ready_reasons() const;
  /// Workers that take requests now.
  std::size_t ready_workers() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::router
