// Deadlines for awaits. Every await on the network has one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/system/error_code.hpp>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "common/base/result.hpp"
#include "common/time/clock.hpp"

namespace penstock::async {

/// Pauses the coroutine. Ends early, by exception, only if the task is cancelled.
boost::asio::awaitable<void> pause(Duration duration);

/// Runs `work`, cancels it when the time is over and then gives deadline_exceeded. An exception of `work` passes
/// through.
template <class T>
boost::asio::awaitable<Result<T>> with_deadline(boost::asio::awaitable<Result<T>> work, Duration timeout) {
  using namespace boost::asio::experimental::awaitable_operators;  // NOLINT: the operators are only found this way
  auto first = co_await (std::move(work) || pause(timeout));
  if (first.index() == 0) co_return std::move(std::get<0>(first));
  co_return make_error(ErrorCode::deadline_exceeded, "the time given is over");
}

/// Calls a function on the executor when the time is over, unless it is destroyed before. The cheap deadline: the
/// function closes or cancels what is being waited for.
class Watchdog {
 public:
  Watchdog(boost::asio::any_io_executor executor, Duration timeout, std::function<void()> on_expiry);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  bool expired() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the pending wait
};

/// Turns the error code of a network operation into an Error: unavailable, deadline_exceeded, aborted, data_loss or,
/// if TLS itself failed (a certificate that is not trusted, a peer that speaks none), unauthenticated.
Error to_error(const boost::system::error_code& code, std::string_view what);

}  // namespace penstock::async
