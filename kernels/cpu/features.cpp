#include "kernels/cpu/features.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace penstock::kernels::cpu {
#if defined(__x86_64__)
namespace {

// Not every compiler's __builtin_cpu_supports knows the name (Clang 16). The registers are saved where AVX is
// supported.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

CpuFeatures cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2");
  features.fma = __builtin_cpu_supports("fma");
  features.f16c = has_f16c();
  features.avx512f = __builtin_cpu_supports("avx512f");
  features.avx512bw = __builtin_cpu_supports("avx512bw");
  features.avx512vl = __builtin_cpu_supports("avx512vl");
  features.avx512_vnni = __builtin_cpu_supports("avx512vnni");
  features.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
#endif
  return features;
}

std::string to_string(const CpuFeatures& features) {
  std::string text;
  auto add = [&text](bool present, std::string_view name) {
    if (!present) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(features.avx2, "avx2");
  add(features.fma, "fma");
  add(features.f16c, "f16c");
  add(features.avx512f, "avx512f");
  add(features.avx512bw, "avx512bw");
  add(features.avx512vl, "avx512vl");
  add(features.avx512_vnni, "avx512_vnni");
  add(features.avx512_bf16, "avx512_bf16");
  return text;
}

std::string_view to_string(IsaLevel level) {
  switch (level) {
    case IsaLevel::portable:
      return "portable";
    case IsaLevel::avx2:
      return "avx2";
    case IsaLevel::avx512:
      return "avx512";
    case IsaLevel::avx512_vnni:
      return "avx512_vnni";
  }
  return "unknown";
}

bool is_supported(IsaLevel level) {
  const CpuFeatures features = cpu_features();
  const bool avx2 = features.avx2 && features.fma && features.f16c;
  const bool avx512 = avx2 && features.avx512f && features.avx512bw && features.avx512vl;
  switch (level) {
    case IsaLevel::portable:
      return true;
    case IsaLevel::avx2:
      return avx2;
    case IsaLevel::avx512:
      return avx512;
    case IsaLevel::avx512_vnni:
      return avx512 && features.avx512_vnni;
  }
  return false;
}

IsaLevel best_isa_level() {
  return supported_isa_levels().back();
}

std::vector<IsaLevel> supported_isa_levels() {
  std::vector<IsaLevel> levels;
  for (const IsaLevel level : all_isa_levels) {
    if (is_supported(level)) levels.push_back(level);
  }
  return levels;
}

}  // namespace penstock::kernels::cpu
