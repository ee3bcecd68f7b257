// A bounded queue from any thread to one executor. Producers push; the consumer function gets batches on the executor,
// one posted handler at a time, so a burst costs one wake-up. After close() or destruction no more batches come (call
// these on the executor's thread).
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::async {

template <class T>
class EventQueue {
 public:
  using Consumer = std::function<void(std::vector<T>&& batch)>;

  EventQueue(boost::asio::any_io_executor executor, std::size_t capacity, Consumer consumer)
      : state_(std::make_shared<State>()) {
    state_->executor = std::move(executor);
    state_->capacity = capacity;
    state_->consumer = std::move(consumer);
  }
  ~EventQueue() { close(); }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  /// Any thread. False, and nothing queued, if the queue is full or closed.
  bool push(T event) {
    std::unique_lock lock(state_->mutex);
    if (state_->closed || state_->events.size() >= state_->capacity) return false;
    state_->events.push_back(std::move(event));
    if (std::exchange(state_->posted, true)) return true;
    lock.unlock();
    boost::asio::post(state_->executor, [state = state_] { deliver(*state); });
    return true;
  }

  std::size_t size() const {
    std::lock_guard lock(state_->mutex);
    return state_->events.size();
  }

  void close() {
    std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->events.clear();
  }

 private:
  struct State {
    boost::asio::any_io_executor executor;
    std::size_t capacity = 0;
    Consumer consumer;
    std::mutex mutex;
    std::vector<T> events;
    bool posted = false;
    bool closed = false;
  };

  static void deliver(State& state) {
    std::vector<T> batch;
    {
      std::lock_guard lock(state.mutex);
      state.posted = false;
      if (state.closed) return;
      batch.swap(state.events);
    }
    if (!batch.empty()) state.consumer(std::move(batch));
  }

  std::shared_ptr<State> state_;  // shared: a posted delivery may run after the queue is gone
};

}  // namespace penstock::async
