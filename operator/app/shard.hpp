// One namespace that the operator serves, or all of them: caches of what is there, kept by informers, and the
// controllers that act on it. Namespaces share nothing, so each of a list gets a shard of its own. Thread: the
// operator's I/O thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/async/task_group.hpp"
#include "common/kube/client/client.hpp"
#include "common/kube/client/recorder.hpp"
#include "common/time/random.hpp"
#include "operator/core/context.hpp"
#include "operator/runtime/controller.hpp"

namespace penstock::ctl {

/// What all shards share; the objects outlive them.
struct ShardContext {
  boost::asio::any_io_executor executor;
  kube::Client& client;
  Writer& writer;
  const Clock& clock;
  Random& random;
  metrics::Registry& metrics;
  log::Logger logger;
  const Capabilities& capabilities;  // as discovered; may change
  Images images;
  unsigned workers = 8;
};

/// Objects without a namespace have one writer among the shards.
enum class ClusterDuty : std::uint8_t { none, topologies_and_nodes };

class Shard {
 public:
  Shard(ShardContext context, std::string namespace_, ClusterDuty duty);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Begins to fill the caches and to work; writes nothing before all caches are filled.
  void start();
  boost::asio::awaitable<void> stop(Duration grace);
  /// Kinds whose cache is not filled yet.
  std::vector<std::string> unsynced() const;
  void update_gauges();
  /// Groups by their trouble (core/group.hpp); only reasons that some group has.
  std::map<std::string, std::size_t> troubles() const;
  /// Services by the condition that is bad (core/service_status.hpp); only conditions that are bad somewhere.
  std::map<std::string, std::size_t> service_troubles() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace penstock::ctl
