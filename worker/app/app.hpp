// Builds a worker from its settings and runs it: model, executor, engine, KV transfer, control port, admin port. Owns
// all lifetimes; the only place that names implementations. Everything that can be wrong at start is one sentence and
// an exit code other than 0, before the control port listens. Thread: main. It becomes the I/O thread; the engine, the
// transfer service and the compute threads are their own.
#pragma once

#include <memory>

#include "common/log/logger.hpp"
#include "worker/app/config.hpp"

namespace penstock::worker {

/// Runs until SIGTERM or SIGINT has drained the worker, or something broke. The exit code: 0 after a drain, 1 if the
/// backend broke. Throws std::exception with one sentence for what is wrong at start.
int run_worker(const WorkerConfig& config, const log::Logger& logger);

}  // namespace penstock::worker
