#include "kernels/cpu/cpu_share.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock::kernels::cpu {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

std::uint32_t affinity_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;  // more processors than the mask holds, or forbidden
  return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
}

/// The path of this process in cgroup v2, from the line "0::PATH"; "/" if there is none.
std::filesystem::path control_group() {
  const std::string groups = read_file("/proc/self/cgroup");
  const std::size_t at = groups.find("0::");
  if (at == std::string::npos) return "/";
  return groups.substr(at + 3, groups.find('\n', at) - at - 3);
}

}  // namespace

std::optional<std::uint32_t> parse_cpu_max(std::string_view text) {
  const auto quota = take_number(text);
  if (!quota || !text.starts_with(' ')) return std::nullopt;
  text.remove_prefix(1);
  const auto period = take_number(text);
  if (!period || *period == 0) return std::nullopt;
  const std::uint64_t cpus = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(cpus, 1, 65536));
}

std::uint32_t available_cpus() {
  std::uint32_t cpus = affinity_cpus();
  // Every group above counts too. The path has a bounded number of parts.
  const std::filesystem::path group = control_group();
  std::filesystem::path folder = "/sys/fs/cgroup";
  for (const auto& part : group.relative_path()) {
    if (const auto limit = parse_cpu_max(read_file(folder / "cpu.max"))) cpus = std::min(cpus, *limit);
    folder /= part;
  }
  if (const auto limit = parse_cpu_max(read_file(folder / "cpu.max"))) cpus = std::min(cpus, *limit);
  return cpus;
}

}  // namespace penstock::kernels::cpu
