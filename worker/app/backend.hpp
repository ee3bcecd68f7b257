// Makes what computes: the model's texts and card, and the executor that the settings name. At start, before anything
// listens; throws std::runtime_error with one sentence.
#pragma once

#include <memory>

#include "worker/app/config.hpp"
#include "worker/engine/executor.hpp"
#include "worker/model/loader.hpp"

namespace penstock::worker {

struct Backend {
  std::shared_ptr<const LoadedModel> model;  // shared with the executor
  std::unique_ptr<Executor> executor;
};

Backend make_backend(const WorkerConfig& config);

}  // namespace penstock::worker
