// Runs a function on a thread pool and comes back to the coroutine's executor with what it returned. Cancellation does
// not cut it short, so the function may use what the coroutine owns.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>
#include <utility>

namespace penstock::router {

template <class Function>
auto run_in(boost::asio::thread_pool& pool, Function function)
    -> boost::asio::awaitable<std::invoke_result_t<Function&>> {
  namespace asio = boost::asio;
  using Value = std::invoke_result_t<Function&>;
  auto start = [&pool](auto handler, Function work) {
    auto guard = asio::make_work_guard(asio::get_associated_executor(handler));
    asio::post(pool, [handler = std::move(handler), work = std::move(work), guard = std::move(guard)]() mutable {
      auto executor = guard.get_executor();
      asio::post(executor, [handler = std::move(handler), value = work(), guard = std::move(guard)]() mutable {
        std::move(handler)(std::move(value));
      });
    });
  };
  return asio::async_initiate<const asio::use_awaitable_t<>, void(Value)>(std::move(start), asio::use_awaitable,
                                                                          std::move(function));
}

}  // namespace penstock::router
