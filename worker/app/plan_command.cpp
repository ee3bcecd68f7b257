#include "worker/app/plan_command.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/config/fields.hpp"
#include "common/config/load.hpp"
#include "worker/core/plan/plan.hpp"
#include "worker/model/shape.hpp"

namespace penstock::worker {

enum class PlanWeights : std::uint8_t { checkpoint, bf16, fp8, int4 };
enum class PlanKv : std::uint8_t { bf16, fp8 };

std::span<const std::pair<std::string_view, PlanWeights>> config_names(PlanWeights) {
  static constexpr std::array<std::pair<std::string_view, PlanWeights>, 4> names{
      {{"checkpoint", PlanWeights::checkpoint},
       {"bf16", PlanWeights::bf16},
       {"fp8", PlanWeights::fp8},
       {"int4", PlanWeights::int4}}};
  return names;
}
std::span<const std::pair<std::string_view, PlanKv>> config_names(PlanKv) {
  static constexpr std::array<std::pair<std::string_view, PlanKv>, 2> names{
      {{"bf16", PlanKv::bf16}, {"fp8", PlanKv::fp8}}};
  return names;
}

namespace {

struct PlanConfig {
  std::filesystem::path model;
  std::uint32_t devices = 1;
  std::string device_kind = "h200";
  PlanWeights weights = PlanWeights::checkpoint;
  PlanKv kv_dtype = PlanKv::bf16;
  std::uint32_t context_tokens = 0;
  std::uint32_t sequence_tokens = 1024;
  std::uint32_t step_tokens = 2048;
  std::uint32_t sequences = 256;

  void fields(config::Fields& f) {
    f.field("plan", model, "A Hugging Face folder, a config.json or a .gguf file.");
    f.field("devices", devices, "How many GPUs there are.");
    f.field("device-kind", device_kind, "h200, h100, a100-80, l40s or b200.");
    f.field("weights", weights, "Format of the layers' matrices; checkpoint takes what the model says.");
    f.field("kv-dtype", kv_dtype, "How keys and values are kept.");
    f.field("context-tokens", context_tokens, "Longest sequence that must fit; 0: the model's, at most 8192.");
    f.field("sequence-tokens", sequence_tokens, "Context of each sequence in the limits that are printed.");
    f.field("step-tokens", step_tokens, "Token budget of one engine step; sizes the workspace.");
    f.field("sequences", sequences, "Most sequences that run at once; sizes the workspace.");
  }
  void validate(config::Problems& problems) const {
    if (model.empty()) problems.add("plan", "needs a model");
    if (devices == 0 || devices > plan::devices_max) problems.add("devices", "must be between 1 and 512");
    if (sequence_tokens == 0) problems.add("sequence-tokens", "must be at least 1");
    if (step_tokens == 0 || step_tokens > 65536) problems.add("step-tokens", "must be between 1 and 65536");
    if (sequences == 0 || sequences > 4096) problems.add("sequences", "must be between 1 and 4096");
  }
};

plan::WeightFormat format_of(PlanWeights weights, plan::WeightFormat checkpoint) {
  switch (weights) {
    case PlanWeights::checkpoint:
      return checkpoint;
    case PlanWeights::bf16:
      return plan::WeightFormat::bf16;
    case PlanWeights::fp8:
      return plan::WeightFormat::fp8;
    case PlanWeights::int4:
      return plan::WeightFormat::int4;
  }
  return checkpoint;
}

Result<plan::Plan> plan_of(const PlanConfig& config) {
  PENSTOCK_TRY(const plan::ModelShape shape, read_model_shape(config.model));
  PENSTOCK_TRY(const plan::DeviceKind device, plan::find_device_kind(config.device_kind));
  plan::PlanOptions options;
  options.devices = config.devices;
  options.memory.weights = format_of(config.weights, shape.weights);
  options.memory.kv_value_bytes = config.kv_dtype == PlanKv::fp8 ? 1 : 2;
  options.memory.step_tokens = config.step_tokens;
  options.memory.sequences = config.sequences;
  const std::uint32_t usual = std::min(8192u, shape.context_tokens);
  options.context_tokens = config.context_tokens != 0 ? config.context_tokens : usual;
  options.sequence_tokens = config.sequence_tokens;
  return plan::make_plan(shape, device, options);
}

}  // namespace

bool asks_for_plan(int argc, const char* const* argv) {
  return std::any_of(argv + std::min(1, argc), argv + argc, [](const char* argument) {
    const std::string_view text(argument);
    return text == "--plan" || text.starts_with("--plan=");
  });
}

int run_plan(int argc, const char* const* argv) {
  const config::Program program{"penstock-worker --plan", "0.1.0", "Says what a model needs on GPUs, without one."};
  const auto loaded = config::load<PlanConfig>(program, argc, argv);
  if (loaded.outcome.exit_code) {
    std::fputs(loaded.outcome.output.c_str(), stdout);
    std::fputs(loaded.outcome.error_output.c_str(), stderr);
    return *loaded.outcome.exit_code;
  }
  const Result<plan::Plan> plan = plan_of(loaded.config);
  if (!plan) {
    std::fprintf(stderr, "penstock-worker: %s\n", plan.error().message.c_str());
    return 1;
  }
  std::fputs(plan::report(*plan).c_str(), stdout);
  return 0;
}

}  // namespace penstock::worker
