#include "worker/core/plan/plan.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

Candidate estimate(const ModelShape& shape, const RankLayout& layout, const DeviceKind& device,
                   const PlanOptions& options) {
  Candidate candidate;
  candidate.layout = layout;
  candidate.memory = memory_of(shape, layout, device, options.memory);
  const std::uint64_t room = candidate.memory.replica_kv_tokens / options.sequence_tokens * layout.sizes().data;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    BatchEstimate& batch = candidate.estimates[i];
    batch.running = static_cast<std::uint32_t>(std::min<std::uint64_t>(batches[i], std::max<std::uint64_t>(1, room)));
    batch.step = decode_step_time(shape, layout, device, options.memory, batch.running, options.sequence_tokens);
  }
  return candidate;
}

bool fits(const RankMemory& memory, const PlanOptions& options) {
  return memory.replica_kv_tokens >= options.context_tokens;
}

std::vector<Candidate> fitting(const ModelShape& shape, const DeviceKind& device, const PlanOptions& options,
                               std::uint32_t devices) {
  std::vector<Candidate> found;
  for (const RankLayout& layout : layouts_of(shape, devices)) {
    if (fits(memory_of(shape, layout, device, options.memory), options)) {
      found.push_back(estimate(shape, layout, device, options));
    }
  }
  return found;
}

void sort_best_first(std::vector<Candidate>& candidates) {
  std::array<double, batches.size()> best{};
  for (const Candidate& candidate : candidates) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      best[i] = std::max(best[i], candidate.estimates[i].tokens_per_second());
    }
  }
  const auto shortfall = [&](const Candidate& candidate) {
    double sum = 0;
    for (std::size_t i = 0; i < best.size(); ++i) sum += best[i] / candidate.estimates[i].tokens_per_second();
    return sum;
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return shortfall(a) < shortfall(b); });
}

std::string gibibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1ull << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

/// The fewest devices with a layout that fits.
std::optional<Candidate> smallest(const ModelShape& shape, const DeviceKind& device, const PlanOptions& options) {
  for (std::uint32_t devices = 1; devices <= devices_max; devices += devices < 16 ? 1 : 8) {
    std::vector<Candidate> found = fitting(shape, device, options, devices);
    if (found.empty()) continue;
    sort_best_first(found);
    return found.front();
  }
  return std::nullopt;
}

Error does_not_fit(const ModelShape& shape, const DeviceKind& device, const PlanOptions& options) {
  const std::vector<RankLayout> layouts = layouts_of(shape, options.devices);
  const std::string where = std::to_string(options.devices) + " x " + std::string(device.name);
  std::string why;
  if (layouts.empty()) {
    why = "no layout of " + where + " divides the model";
  } else {
    RankMemory leanest = memory_of(shape, layouts.front(), device, options.memory);
    for (const RankLayout& layout : layouts) {
      const RankMemory memory = memory_of(shape, layout, device, options.memory);
      if (memory.weights_bytes + memory.workspace_bytes < leanest.weights_bytes + leanest.workspace_bytes) {
        leanest = memory;
      }
    }
    why = "the model does not fit on " + where + ": a rank needs at least " + gibibytes(leanest.weights_bytes) +
          " for weights, " + gibibytes(leanest.workspace_bytes + leanest.reserved_bytes) +
          " to work in, and KV for a sequence of " + std::to_string(options.context_tokens) + " tokens, of " +
          gibibytes(device.memory_bytes);
  }
  const std::optional<Candidate> enough = smallest(shape, device, options);
  if (!enough) return make_error(ErrorCode::resource_exhausted, why + "; no layout of up to 512 devices does");
  return make_error(ErrorCode::resource_exhausted,
                    why + "; the smallest layout that fits is " + enough->layout.to_string() + " on " +
                        std::to_string(enough->layout.ranks()) + " x " + std::string(device.name));
}

}  // namespace

Result<Plan> make_plan(const ModelShape& shape, const DeviceKind& device, const PlanOptions& options) {
  if (options.devices == 0 || options.devices > devices_max) {
    return make_error(ErrorCode::invalid_argument, "devices: must be between 1 and " + std::to_string(devices_max));
  }
  Plan plan{shape, device, options, fitting(shape, device, options, options.devices)};
  if (plan.candidates.empty()) return does_not_fit(shape, device, options);
  sort_best_first(plan.candidates);
  return plan;
}

}  // namespace penstock::worker::plan
