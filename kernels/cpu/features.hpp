// Which instruction sets this processor and operating system offer. Read once at start-up; values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::kernels::cpu {

struct CpuFeatures {
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vl = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
};

/// Asks the processor (CPUID) and whether the system saves the wide registers.
CpuFeatures cpu_features();

/// For a start-up log line: "avx2 fma f16c".
std::string to_string(const CpuFeatures& features);

/// The code paths that this build has. Every level gives results that do not depend on batch, chunk or thread count;
/// two levels may differ in rounding.
enum class IsaLevel : std::uint8_t { portable, avx2, avx512, avx512_vnni };

inline constexpr IsaLevel all_isa_levels[] = {IsaLevel::portable, IsaLevel::avx2, IsaLevel::avx512,
                                              IsaLevel::avx512_vnni};  // slowest first

std::string_view to_string(IsaLevel level);
bool is_supported(IsaLevel level);
IsaLevel best_isa_level();

/// All levels that run here, slowest first.
std::vector<IsaLevel> supported_isa_levels();

}  // namespace penstock::kernels::cpu
