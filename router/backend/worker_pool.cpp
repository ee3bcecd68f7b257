#include "router/backend/worker_pool.hpp"

#include <algorithm>
#include <string_view>

namespace penstock::router {

WorkerPool::WorkerPool(boost::asio::any_io_executor executor, BackendContext context, std::size_t workers_max)
    : executor_(std::move(executor)), context_(std::move(context)), workers_max_(workers_max) {}

WorkerPool::~WorkerPool() = default;

void WorkerPool::set_targets(const std::vector<WorkerTarget>& targets) {
  std::erase_if(retired_, [](const Entry& entry) { return entry.task->count() == 0; });
  std::unordered_map<std::string_view, const WorkerTarget*> wanted;
  for (const WorkerTarget& target : targets) wanted.emplace(target.address, &target);
  for (auto one = connections_.begin(); one != connections_.end();) {
    if (auto known = wanted.find(one->first); known != wanted.end()) {
      one->second.connection->set_target(*known->second);
      ++one;
      continue;
    }
    retire(std::move(one->second));
    one = connections_.erase(one);
  }
  for (const auto& [address, target] : wanted) {
    if (connections_.contains(target->address)) continue;
    if (connections_.size() >= workers_max_) {
      context_.logger.error("too many workers, the rest is left out", {{"workers_max", workers_max_}});
      return;
    }
    Entry entry{std::make_unique<WorkerConnection>(context_, *target), nullptr};
    entry.task = std::make_unique<async::TaskGroup>(executor_, [this](std::string_view, std::string_view what) {
      context_.logger.error("worker connection failed", {{"reason", what}});
    });
    entry.task->spawn("worker connection", entry.connection->run());
    connections_.emplace(target->address, std::move(entry));
  }
}

void WorkerPool::retire(Entry entry) {
  entry.task->cancel();
  retired_.push_back(std::move(entry));
}

WorkerConnection* WorkerPool::find(InstanceId instance) {
  for (auto& [address, entry] : connections_) {
    if (entry.connection->instance() == instance) return entry.connection.get();
  }
  return nullptr;
}

bool WorkerPool::send(InstanceId instance, const protocol::RouterMessage& message) {
  WorkerConnection* connection = find(instance);
  return connection != nullptr && connection->send(message);
}

bool WorkerPool::send(WorkerRef worker, const ServedModel& model, const protocol::RouterMessage& message) {
  for (auto& [address, entry] : connections_) {
    if (entry.connection->model() == &model && entry.connection->ref() == worker) {
      return entry.connection->send(message);
    }
  }
  return false;
}

std::vector<std::string> WorkerPool::problems() const {
  std::vector<std::string> sentences;
  for (const auto& [address, entry] : connections_) {
    if (!entry.connection->problem().empty()) {
      sentences.push_back("worker " + address + ": " + entry.connection->problem());
    }
  }
  std::sort(sentences.begin(), sentences.end());
  return sentences;
}

boost::asio::awaitable<void> WorkerPool::stop() {
  for (auto& [address, entry] : connections_) retired_.push_back(std::move(entry));
  connections_.clear();
  for (auto& entry : retired_) co_await entry.task->drain(Duration{});
  retired_.clear();
}

}  // namespace penstock::router
