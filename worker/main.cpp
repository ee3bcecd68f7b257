// penstock-worker: runs one model replica. Settings: worker/app/config.hpp, or --help. With --plan it only says what a
// model needs on GPUs: worker/app/plan_command.hpp.
#include <cstdio>
#include <exception>

#include "common/config/load.hpp"
#include "common/log/logger.hpp"
#include "worker/app/app.hpp"
#include "worker/app/config.hpp"
#include "worker/app/plan_command.hpp"

int main(int argc, char** argv) {
  using namespace penstock;
  if (worker::asks_for_plan(argc, argv)) return worker::run_plan(argc, argv);
  const config::Program program{
      "penstock-worker", "0.1.0",
      "Runs one replica of a language model.\n"
      "With --plan MODEL --devices N: says what a model needs on GPUs (--plan MODEL --help)."};
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
