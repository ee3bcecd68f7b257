// The operator as an object: finds the API server, learns what it serves, elects a leader, runs a shard for each
// namespace. main() uses it. Thread: that of `io`. Nothing in it outlives drain().
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/log/logger.hpp"
#include "operator/app/config.hpp"

namespace penstock::ctl {

class OperatorApp {
 public:
  /// Throws std::runtime_error with one sentence if no API server can be found.
  OperatorApp(boost::asio::io_context& io, OperatorConfig config, log::Logger logger);
  ~OperatorApp();
  OperatorApp(const OperatorApp&) = delete;
  OperatorApp& operator=(const OperatorApp&) = delete;

  /// Binds the admin port and begins. The error is one sentence.
  Result<void> start();
  /// Stops leading at once, lets running reconciles end, hands the lease over.
  boost::asio::awaitable<void> drain();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::ctl
