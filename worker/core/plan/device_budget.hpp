// Whether a worker's model and KV pool fit on the devices that are there, as a table for people. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "worker/core/plan/memory.hpp"
#include "worker/core/plan/model_shape.hpp"

namespace penstock::worker::plan {

struct DeviceBudget {
  std::string device;  // its name
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // before anything was allocated
  RankMemory memory;
  std::uint64_t kv_pool_bytes = 0;

  std::uint64_t needed_bytes() const;
  bool fits() const { return needed_bytes() <= free_bytes; }
  /// Lines, each with a newline: what takes how much, the sum, and what is free.
  std::string table() const;
  /// Why it does not fit and what to do, with the table.
  std::string refusal() const;
};

struct DeviceRoom {
  std::string name;
  std::uint64_t total_bytes = 0, free_bytes = 0;
};

/// Of each of `ranks` equal devices that share every layer, as the CUDA executor does it: embedding and head are whole
/// on each, the KV pool is divided. `ranks` must divide the model.
DeviceBudget budget_of(const ModelShape& shape, const DeviceRoom& room, const MemoryOptions& options,
                       std::uint64_t kv_pool_bytes, std::uint32_t ranks = 1);

}  // namespace penstock::worker::plan
