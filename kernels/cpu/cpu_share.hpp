// How many processors this process may use at once: its affinity mask, cut by the quota of its control group, which
// containers set. Read at start-up; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock::kernels::cpu {

/// At least 1. A quota of 1.5 processors counts as 2.
std::uint32_t available_cpus();

/// The processors that a cpu.max file of cgroup v2 allows ("150000 100000" is 2); nothing if it sets no limit or is
/// not understood.
std::optional<std::uint32_t> parse_cpu_max(std::string_view text);

}  // namespace penstock::kernels::cpu
