// penstock-router: OpenAI API in, tokens out to workers, text back to clients. See router/README.md.
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>

#include "common/async/signals.hpp"
#include "common/async/task_group.hpp"
#include "common/config/load.hpp"
#include "router/app/router_app.hpp"
#include "router/app/version.hpp"

namespace {

int run(const penstock::router::RouterConfig& config) {
  namespace async = penstock::async;
  boost::asio::io_context io(1);
  penstock::log::Logger logger = penstock::log::make_logger(config.log.options());
  penstock::router::RouterApp app(io, config, logger);
  async::TaskGroup stopping(io.get_executor());
  bool has_stopped = false;
  const async::StopSignals signals(io.get_executor(), [&] { stopping.spawn("drain", app.drain()); });
  if (auto started = app.start(); !started) {
    std::fprintf(stderr, "penstock-router: %s\n", started.error().message.c_str());
    return 1;
  }
  // The drain is the only task of its group; when it is over, so is the program.
  bool was_stopping = false;
  while (!has_stopped) {
    if (io.run_one() == 0) break;
    was_stopping = was_stopping || stopping.count() > 0;
    has_stopped = was_stopping && stopping.count() == 0;
  }
  logger.flush();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  penstock::config::Program program;
  program.name = "penstock-router";
  program.version = std::string(penstock::router::version);
  program.description = "Routes OpenAI API requests to workers by what their KV caches hold.";
  auto loaded = penstock::config::load<penstock::router::RouterConfig>(program, argc, argv);
  std::fputs(loaded.outcome.output.c_str(), stdout);
  std::fputs(loaded.outcome.error_output.c_str(), stderr);
  if (loaded.outcome.exit_code) return *loaded.outcome.exit_code;
  try {
    return run(loaded.config);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "penstock-router: %s\n", error.what());
    return 1;
  }
}
