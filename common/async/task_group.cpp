#include "common/async/task_group.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <vector>

namespace penstock::async {
namespace {

constexpr auto cancelled_wait_max = std::chrono::seconds(5);

struct Task {
  std::string_view name;
  asio::cancellation_signal signal;
};

bool is_own_cancellation(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& error) {
    return error.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

std::string describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

struct TaskGroup::State {
  State(asio::any_io_executor executor_, OnFailure on_failure_)
      : executor(std::move(executor_)), on_failure(std::move(on_failure_)), changed(executor) {}
  asio::any_io_executor executor;
  OnFailure on_failure;
  std::list<std::shared_ptr<Task>> tasks;  // shared: cancel() walks a copy while tasks may end
  asio::steady_timer changed;              // cancelled when the last task ends

  void finish(std::list<std::shared_ptr<Task>>::iterator place, const std::exception_ptr& failure) {
    const std::shared_ptr<Task> task = *place;
    tasks.erase(place);
    if (failure && on_failure && !is_own_cancellation(failure)) on_failure(task->name, describe(failure));
    if (tasks.empty()) changed.cancel();
  }
};

TaskGroup::TaskGroup(asio::any_io_executor executor, OnFailure on_failure)
    : state_(std::make_shared<State>(std::move(executor), std::move(on_failure))) {}

TaskGroup::~TaskGroup() {
  state_->on_failure = nullptr;
  cancel();
}

void TaskGroup::spawn(std::string_view name, asio::awaitable<void> task) {
  auto entry = std::make_shared<Task>();
  entry->name = name;
  auto place = state_->tasks.insert(state_->tasks.end(), entry);
  asio::co_spawn(state_->executor, std::move(task),
                 asio::bind_cancellation_slot(entry->signal.slot(),
                                              [state = state_, place, entry](const std::exception_ptr& failure) {
                                                state->finish(place, failure);
                                              }));
}

std::size_t TaskGroup::count() const {
  return state_->tasks.size();
}
asio::any_io_executor TaskGroup::executor() const {
  return state_->executor;
}

void TaskGroup::cancel() {
  const std::vector<std::shared_ptr<Task>> tasks(state_->tasks.begin(), state_->tasks.end());
  for (const auto& task : tasks) task->signal.emit(asio::cancellation_type::terminal);
}

asio::awaitable<std::size_t> TaskGroup::drain(Duration grace) {
  const std::shared_ptr<State> state = state_;
  if (!state->tasks.empty()) {
    state->changed.expires_after(grace);
    co_await state->changed.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  const std::size_t left = state->tasks.size();
  if (left > 0) {
    cancel();
    state->changed.expires_after(cancelled_wait_max);
    co_await state->changed.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return left;
}

}  // namespace penstock::async
