// Deadlines for awaits. Every await on the network has one.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
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

/// Turns the error code of a network operation into an Error: unavailable, deadline_exceeded, aborted or internal.
Error to_error(const boost::system::error_code& code, std::string_view what);

}  // namespace penstock::async
