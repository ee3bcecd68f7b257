// Watches the worker pods of one service and says who they are each time that changes. While the API server can't be
// reached, what was known last stays good: nothing is said. Owner: the app. Thread: the router's I/O thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/kube/client/client.hpp"
#include "router/discovery/pods.hpp"

namespace penstock::router {

struct PodWatchOptions {
  std::string namespace_;
  std::string selector;       // label selector, "penstock.dev/service=chat,penstock.dev/leader=true"
  std::uint16_t port = 7000;  // of the workers' control protocol
};

class PodWatch {
 public:
  using Listener = std::function<void(const std::vector<WorkerTarget>&)>;

  PodWatch(boost::asio::any_io_executor executor, kube::ClusterConfig cluster, PodWatchOptions options,
           metrics::Registry& metrics, log::Logger logger, std::uint64_t seed, Listener listener);
  ~PodWatch();
  PodWatch(const PodWatch&) = delete;
  PodWatch& operator=(const PodWatch&) = delete;

  /// Never returns; ends by cancellation. Spawn once.
  boost::asio::awaitable<void> run();
  /// Whether the first list is in.
  bool is_synced() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::router
