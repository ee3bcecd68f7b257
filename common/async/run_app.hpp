// The main loop of a program with one I/O thread: start, serve, drain at the first stop signal, end when that is over.
#pragma once

#include <boost/asio/io_context.hpp>

#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"
#include "common/base/result.hpp"

namespace penstock::async {

/// App has `Result<void> start()` and `awaitable<void> drain()`, and runs on `io` alone. Returns after the drain; an
/// error is that of start(). Call from main(): StopSignals are one a program.
template <class App>
Result<void> run_app(asio::io_context& io, App& app) {
  TaskGroup stopping(io.get_executor());
  const StopSignals signals(io.get_executor(), [&] { stopping.spawn("drain", app.drain()); });
  if (auto started = app.start(); !started) return started.error();
  // The drain is the only task of its group; when it is over, so is the program.
  for (bool was_stopping = false; !was_stopping || stopping.count() > 0;) {
    if (io.run_one() == 0) break;
    was_stopping = was_stopping || stopping.count() > 0;
  }
  return {};
}

}  // namespace penstock::async
