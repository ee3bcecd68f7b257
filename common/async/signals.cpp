#include "common/async/signals.hpp"

#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <utility>

namespace penstock::async {

struct StopSignals::State : std::enable_shared_from_this<State> {
  State(boost::asio::any_io_executor executor, std::function<void()> on_stop_)
      : signals(std::move(executor), SIGTERM, SIGINT), on_stop(std::move(on_stop_)) {}

  void wait() {
    signals.async_wait([self = shared_from_this()](const boost::system::error_code& code, int) {
      if (code) return;
      if (!self->on_stop) _exit(130);  // the second signal: whoever sends it wants the end now
      auto stop = std::exchange(self->on_stop, nullptr);
      self->wait();
      stop();
    });
  }

  boost::asio::signal_set signals;
  std::function<void()> on_stop;
};

StopSignals::StopSignals(boost::asio::any_io_executor executor, std::function<void()> on_stop)
    : state_(std::make_shared<State>(std::move(executor), std::move(on_stop))) {
  std::signal(SIGPIPE, SIG_IGN);
  state_->wait();
}

StopSignals::~StopSignals() {
  boost::system::error_code ignored;
  state_->signals.cancel(ignored);
}

}  // namespace penstock::async
