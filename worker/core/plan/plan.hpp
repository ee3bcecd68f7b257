// What a model needs and how fast it could be on some devices: every layout that fits, the best first. Pure; any
// thread. Bounds: up to devices_max devices, a few hundred layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "worker/core/plan/device_kind.hpp"
#include "worker/core/plan/memory.hpp"
#include "worker/core/plan/model_shape.hpp"
#include "worker/core/plan/roofline.hpp"

namespace penstock::worker::plan {

constexpr std::uint32_t devices_max = 512;
constexpr std::array<std::uint32_t, 4> batches{1, 16, 64, 256};

struct PlanOptions {
  std::uint32_t devices = 1;
  MemoryOptions memory;
  std::uint32_t context_tokens = 8192;   // the longest sequence that must fit
  std::uint32_t sequence_tokens = 1024;  // context of each sequence in the rooflines
};

struct BatchEstimate {
  std::uint32_t running = 0;  // sequences that the KV has room for, at most the batch
  StepTime step;              // with those
  double tokens_per_second() const { return running / step.total(); }
};

struct Candidate {
  RankLayout layout;
  RankMemory memory;  // of the fullest rank
  std::array<BatchEstimate, batches.size()> estimates;
};

struct Plan {
  ModelShape shape;
  DeviceKind device;
  PlanOptions options;
  /// Best first: by throughput relative to the best layout of each batch, summed over batches.
  std::vector<Candidate> candidates;
};

/// Layouts of exactly `devices` ranks that divide the model.
std::vector<RankLayout> layouts_of(const ModelShape& shape, std::uint32_t devices);

/// Errors: resource_exhausted if no layout of so many devices fits, with what is missing and the smallest layout that
/// does; unsupported if none divides the model.
Result<Plan> make_plan(const ModelShape& shape, const DeviceKind& device, const PlanOptions& options);

/// The plan as lines of text for people.
std::string report(const Plan& plan);

}  // namespace penstock::worker::plan
