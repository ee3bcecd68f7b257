// `penstock-operator agent`: keeps the model caches of one node as the operator wishes. Watches the node's
// NodeModelCache and the ModelCaches, fetches and removes on a thread of its own, writes the status. It may do nothing
// else on the API server. Owner: main, on one I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>

#include "common/base/result.hpp"
#include "common/log/logger.hpp"
#include "operator/agent/config.hpp"

namespace penstock::ctl {

class AgentApp {
 public:
  /// Throws if there is no way to the API server, no node, or no folder.
  AgentApp(boost::asio::io_context& io, AgentConfig config, log::Logger logger);
  ~AgentApp();
  AgentApp(const AgentApp&) = delete;
  AgentApp& operator=(const AgentApp&) = delete;

  Result<void> start();
  boost::asio::awaitable<void> drain();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::ctl
