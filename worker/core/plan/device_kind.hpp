// What a kind of GPU can do, as far as plans need it. Rates of the H200 were measured with the programs of this project
// or by hand on that part; the others are 93 % of the maker's memory rate and 80 % of its matrix rate, which is about
// what the H200 reaches of its own. Constants; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace penstock::worker::plan {

enum class Source : std::uint8_t { measured, datasheet };

struct DeviceKind {
  std::string_view name;  // "h200"
  std::uint64_t memory_bytes = 0;
  double read_bytes_per_second = 0;  // of large sequential reads
  double bf16_flops_per_second = 0;  // dense products
  double fp8_flops_per_second = 0;
  std::uint32_t multiprocessors = 0;
  Source source = Source::datasheet;
};

std::span<const DeviceKind> device_kinds();
/// The error lists the known names.
Result<DeviceKind> find_device_kind(std::string_view name);

}  // namespace penstock::worker::plan
