// Owns spawned coroutines: nothing runs unowned. All calls are made on the executor's thread (or strand).
// Cancellation is terminal: the task's pending await ends with operation_aborted. Tasks bound themselves; the group
// counts them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/time/clock.hpp"

namespace penstock::async {

namespace asio = boost::asio;

class TaskGroup {
 public:
  /// Told when a task ends with an exception that is not its own cancellation.
  using OnFailure = std::function<void(std::string_view task, std::string_view what)>;

  explicit TaskGroup(asio::any_io_executor executor, OnFailure on_failure = {});
  /// Cancels what is left. Tasks must not outlive what they refer to: drain first.
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  /// `name` is for logs and must outlive the group (a literal).
  void spawn(std::string_view name, asio::awaitable<void> task);

  std::size_t count() const;
  void cancel();
  /// Waits until no task is left. After `grace` the rest is cancelled, then waited for. Returns how many were
  /// cancelled.
  asio::awaitable<std::size_t> drain(Duration grace);

  asio::any_io_executor executor() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with completion handlers, which may run after the group is gone
};

}  // namespace penstock::async
