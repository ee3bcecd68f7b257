#include "worker/core/plan/device_budget.hpp"

#include <cstdio>

#include "worker/core/plan/linears.hpp"

namespace penstock::worker::plan {
namespace {

std::string line(const char* what, std::uint64_t bytes, const std::string& note = "") {
  char text[160];
  std::snprintf(text, sizeof text, "  %-10s %8.2f GiB%s%s\n", what, static_cast<double>(bytes) / (1ull << 30),
                note.empty() ? "" : "  ", note.c_str());
  return text;
}

}  // namespace

std::uint64_t DeviceBudget::needed_bytes() const {
  return memory.weights_bytes + memory.workspace_bytes + memory.reserved_bytes + kv_pool_bytes;
}

std::string DeviceBudget::table() const {
  const std::uint64_t tokens = memory.kv_token_bytes == 0 ? 0 : kv_pool_bytes / memory.kv_token_bytes;
  return line("weights", memory.weights_bytes) + line("workspace", memory.workspace_bytes) +
         line("reserved", memory.reserved_bytes, "driver, kernels, graphs") +
         line("KV pool", kv_pool_bytes, std::to_string(tokens) + " tokens") + line("needed", needed_bytes()) +
         line("free", free_bytes, "on " + device);
}

std::string DeviceBudget::refusal() const {
  const std::uint64_t rest = memory.weights_bytes + memory.workspace_bytes + memory.reserved_bytes;
  std::string advice = "lower --kv-pool";
  if (rest >= free_bytes) advice = "the model needs a larger device: penstock-worker --plan MODEL --devices N";
  return "the model does not fit in the GPU's memory; " + advice + "\n" + table();
}

DeviceBudget budget_of(const ModelShape& shape, const DeviceRoom& room, const MemoryOptions& options,
                       std::uint64_t kv_pool_bytes, std::uint32_t ranks) {
  DeviceKind kind;
  kind.memory_bytes = room.total_bytes;
  AxisSizes sizes;
  sizes.tensor = ranks;
  const RankLayout layout = RankLayout::make(sizes).value();
  RankMemory memory = memory_of(shape, layout, kind, options);
  const std::uint64_t tables = shape.tied_embeddings ? 1 : 2;
  memory.weights_bytes += tables * (head_of(shape, RankLayout()).bytes() - head_of(shape, layout).bytes());
  return {room.name, room.total_bytes, room.free_bytes, memory, kv_pool_bytes / ranks};
}

}  // namespace penstock::worker::plan
