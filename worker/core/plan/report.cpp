#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "worker/core/plan/linears.hpp"
#include "worker/core/plan/plan.hpp"

namespace penstock::worker::plan {
namespace {

constexpr double giga = 1e9, milli = 1e-3, micro = 1e-6;
constexpr std::size_t layouts_shown = 8;

__attribute__((format(printf, 2, 3))) void add(std::string& text, const char* format, ...) {
  char line[256];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  text += line;
}

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::fp8:
      return "fp8";
    case WeightFormat::int4:
      return "int4 in groups of 128";
  }
  return "?";
}

double gigabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / giga;
}

void add_model(std::string& text, const Plan& plan) {
  const ModelShape& shape = plan.shape;
  add(text, "model      %s, %.2f B parameters, %.2f B read by a token\n", shape.architecture.c_str(),
      static_cast<double>(parameters_of(shape)) / giga, static_cast<double>(parameters_read_by_token(shape)) / giga);
  add(text, "weights    %s\n", name_of(plan.options.memory.weights));
  const char* source = plan.device.source == Source::measured ? "measured" : "from the maker's figures";
  add(text, "devices    %u x %s: %.1f GB, %.2f TB/s read, %.0f Tflop/s bf16 (%s)\n", plan.options.devices,
      std::string(plan.device.name).c_str(), gigabytes(plan.device.memory_bytes),
      plan.device.read_bytes_per_second / 1e12, plan.device.bf16_flops_per_second / 1e12, source);
}

void add_memory(std::string& text, const Plan& plan) {
  const Candidate& best = plan.candidates.front();
  const RankMemory& memory = best.memory;
  add(text, "\nbest layout: %s\n", best.layout.to_string().c_str());
  add(text, "memory of a rank, GB   weights %.2f   workspace %.2f   reserved %.2f   KV %.2f\n",
      gigabytes(memory.weights_bytes), gigabytes(memory.workspace_bytes), gigabytes(memory.reserved_bytes),
      gigabytes(memory.kv_bytes));
  add(text, "KV                     %llu bytes a token and rank, %llu tokens in each replica\n",
      static_cast<unsigned long long>(memory.kv_token_bytes),
      static_cast<unsigned long long>(memory.replica_kv_tokens));
  add(text, "a layer                %.2f MB of weights\n", static_cast<double>(memory.layer_bytes) / 1e6);
}

void add_linear(std::string& text, const Plan& plan, const Linear& linear) {
  const TileWaste waste = tile_waste(linear, plan.device.multiprocessors);
  const double bytes = static_cast<double>(linear.bytes_of_one());
  add(text, "  %-15s %7llu x %-6llu %6llu %10.2f %9.2f %8.1f %% %8.1f %%\n", std::string(linear.name).c_str(),
      static_cast<unsigned long long>(linear.rows), static_cast<unsigned long long>(linear.columns),
      static_cast<unsigned long long>(linear.copies), bytes / 1e6, bytes / plan.device.read_bytes_per_second / micro,
      100 * waste.padding, 100 * waste.wave);
}

void add_linears(std::string& text, const Plan& plan) {
  const RankLayout& layout = plan.candidates.front().layout;
  text += "\nmatrices of a rank     rows x columns copies    MB each   us read  padding    idle in the last wave\n";
  for (const Linear& linear : linears_of_layer(plan.shape, layout, plan.options.memory.weights)) {
    add_linear(text, plan, linear);
  }
  add_linear(text, plan, head_of(plan.shape, layout));
}

void add_rooflines(std::string& text, const Plan& plan) {
  add(text, "\nlimit of decoding with %u tokens of context each, best layout\n", plan.options.sequence_tokens);
  text += "  batch  running   TPOT ms  tokens/s   of it ms: weights      KV  launches  collectives\n";
  const Candidate& best = plan.candidates.front();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchEstimate& batch = best.estimates[i];
    add(text, "  %5u %8u %9.3f %9.0f %18.3f %7.3f %9.3f %12.3f\n", batches[i], batch.running,
        batch.step.total() / milli, batch.tokens_per_second(), batch.step.weights_seconds / milli,
        batch.step.kv_seconds / milli, batch.step.launch_seconds / milli, batch.step.collective_seconds / milli);
  }
}

void add_layouts(std::string& text, const Plan& plan) {
  text += "\nlayouts that fit         tokens/s at";
  for (const std::uint32_t batch : batches) add(text, " %9u", batch);
  text += "\n";
  const std::size_t shown = std::min(layouts_shown, plan.candidates.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Candidate& candidate = plan.candidates[i];
    add(text, "  %-34s", candidate.layout.to_string().c_str());
    for (const BatchEstimate& batch : candidate.estimates) add(text, " %9.0f", batch.tokens_per_second());
    text += "\n";
  }
  if (shown < plan.candidates.size()) add(text, "  and %zu more\n", plan.candidates.size() - shown);
}

}  // namespace

std::string report(const Plan& plan) {
  std::string text;
  add_model(text, plan);
  add_memory(text, plan);
  add_linears(text, plan);
  add_rooflines(text, plan);
  if (plan.candidates.size() > 1) add_layouts(text, plan);
  return text;
}

}  // namespace penstock::worker::plan
