// SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once with exit code 130.
// SIGPIPE is ignored. One object a program, made in main() before threads start; its calls come on the executor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>

namespace penstock::async {

class StopSignals {
 public:
  StopSignals(boost::asio::any_io_executor executor, std::function<void()> on_stop);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the pending wait
};

}  // namespace penstock::async
