#include "common/async/deadline.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace penstock::async {

namespace asio = boost::asio;

asio::awaitable<void> pause(Duration duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_after(duration);
  co_await timer.async_wait(asio::use_awaitable);
}

struct Watchdog::State {
  State(asio::any_io_executor executor, std::function<void()> on_expiry_)
      : timer(std::move(executor)), on_expiry(std::move(on_expiry_)) {}
  asio::steady_timer timer;
  std::function<void()> on_expiry;
  bool expired = false;
};

Watchdog::Watchdog(asio::any_io_executor executor, Duration timeout, std::function<void()> on_expiry)
    : state_(std::make_shared<State>(std::move(executor), std::move(on_expiry))) {
  state_->timer.expires_after(timeout);
  state_->timer.async_wait([state = state_](const boost::system::error_code& code) {
    if (code || !state->on_expiry) return;
    state->expired = true;
    std::exchange(state->on_expiry, nullptr)();
  });
}

Watchdog::~Watchdog() {
  state_->on_expiry = nullptr;
  state_->timer.cancel();
}

bool Watchdog::expired() const {
  return state_->expired;
}

Error to_error(const boost::system::error_code& code, std::string_view what) {
  ErrorCode kind = ErrorCode::unavailable;
  if (code == asio::error::operation_aborted) kind = ErrorCode::aborted;
  if (code == asio::error::timed_out) kind = ErrorCode::deadline_exceeded;
  if (code == asio::error::no_buffer_space) kind = ErrorCode::data_loss;
  if (code.category() == asio::error::get_ssl_category()) kind = ErrorCode::unauthenticated;
  return make_error(kind, std::string(what) + ": " + code.message());
}

}  // namespace penstock::async
