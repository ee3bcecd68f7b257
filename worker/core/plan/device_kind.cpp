#include "worker/core/plan/device_kind.hpp"

#include <array>

namespace penstock::worker::plan {
namespace {

constexpr double tera = 1e12;
constexpr std::uint64_t mebibyte = 1u << 20;

constexpr DeviceKind of_datasheet(std::string_view name, std::uint64_t memory_mebibytes, double terabytes_per_second,
                                  double bf16_teraflops, double fp8_teraflops, std::uint32_t multiprocessors) {
  return {name,
          memory_mebibytes * mebibyte,
          0.93 * terabytes_per_second * tera,
          0.8 * bf16_teraflops * tera,
          0.8 * fp8_teraflops * tera,
          multiprocessors,
          Source::datasheet};
}

// H200: 143,771 MiB as the driver reports it, 4.64 TB/s over 8 GB, 788 Tflop/s in an 8192-cube bf16 product; FP8 is
// twice that. An A100 has no FP8 arithmetic and computes in bf16.
constexpr std::array<DeviceKind, 5> kinds{{
    {"h200", 143'771 * mebibyte, 4.64 * tera, 788 * tera, 1'576 * tera, 132, Source::measured},
    of_datasheet("h100", 81'559, 3.35, 989, 1'979, 132),
    of_datasheet("a100-80", 81'920, 2.039, 312, 312, 108),
    of_datasheet("l40s", 46'068, 0.864, 362, 733, 142),
    of_datasheet("b200", 183'359, 8.0, 2'250, 4'500, 148),
}};

}  // namespace

std::span<const DeviceKind> device_kinds() {
  return kinds;
}

Result<DeviceKind> find_device_kind(std::string_view name) {
  std::string known;
  for (const DeviceKind& kind : kinds) {
    if (kind.name == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  return make_error(ErrorCode::invalid_argument,
                    "device kind \"" + std::string(name) + "\" is not known; known are " + known);
}

}  // namespace penstock::worker::plan
