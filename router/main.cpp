// penstock-router: OpenAI API in, tokens out to workers, text back to clients. See router/README.md.
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>

#include "common/async/run_app.hpp"
#include "common/config/load.hpp"
#include "router/app/router_app.hpp"
#include "router/app/version.hpp"

namespace {

int run(const penstock::router::RouterConfig& config) {
  boost::asio::io_context io(1);
  penstock::log::Logger logger = penstock::log::make_logger(config.log.options());
  penstock::router::RouterApp app(io, config, logger);
  if (auto ended = penstock::async::run_app(io, app); !ended) {
    std::fprintf(stderr, "penstock-router: %s\n", ended.error().message.c_str());
    return 1;
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
