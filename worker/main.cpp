// penstock-worker: runs one model replica. Settings: worker/app/config.hpp, or --help.
#include <cstdio>
#include <exception>

#include "common/config/load.hpp"
#include "common/log/logger.hpp"
#include "worker/app/app.hpp"
#include "worker/app/config.hpp"

int main(int argc, char** argv) {
  using namespace penstock;
  const config::Program program{"penstock-worker", "0.1.0", "Runs one replica of a language model."};
  const auto loaded = config::load<worker::WorkerConfig>(program, argc, argv);
  if (loaded.outcome.exit_code) {
    std::fputs(loaded.outcome.output.c_str(), stdout);
    std::fputs(loaded.outcome.error_output.c_str(), stderr);
    return *loaded.outcome.exit_code;
  }
  try {
    return worker::run_worker(loaded.config, log::make_logger(loaded.config.log.options()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "penstock-worker: %s\n", error.what());
    return 1;
  }
}
