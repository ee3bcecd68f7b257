// All worker connections of a router. Discovery says which addresses there should be; requests are sent by instance.
// Thread: the router's I/O thread. Bounds: workers_max addresses.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/async/task_group.hpp"
#include "router/backend/worker_connection.hpp"
#include "router/backend/worker_target.hpp"

namespace penstock::router {

class WorkerPool final : public WorkerSender {
 public:
  WorkerPool(boost::asio::any_io_executor executor, BackendContext context, std::size_t workers_max = 4096);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Connects to new ones, tells the others what has changed about them, and closes the connections of those that are
  /// gone. Of two with one address the first counts.
  void set_targets(const std::vector<WorkerTarget>& targets);
  /// False if the instance is not connected, or its queue is full.
  bool send(InstanceId instance, const protocol::RouterMessage& message) override;
  bool send(WorkerRef worker, const ServedModel& model, const protocol::RouterMessage& message) override;
  /// One sentence for each address without a connection.
  std::vector<std::string> problems() const;
  std::size_t size() const { return connections_.size(); }
  /// Closes everything; ends when all connections have.
  boost::asio::awaitable<void> stop();

 private:
  struct Entry {
    std::unique_ptr<WorkerConnection> connection;
    std::unique_ptr<async::TaskGroup> task;
  };
  void retire(Entry entry);
  WorkerConnection* find(InstanceId instance);

  boost::asio::any_io_executor executor_;
  BackendContext context_;
  std::size_t workers_max_;
  std::unordered_map<std::string, Entry> connections_;
  std::vector<Entry> retired_;  // cancelled, perhaps not yet ended
};

}  // namespace penstock::router
