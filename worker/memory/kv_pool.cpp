#include "worker/memory/kv_pool.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "worker/memory/shared_mapping.hpp"

namespace penstock::worker {
namespace {

#ifndef MADV_COLLAPSE
constexpr int madvise_collapse = 25;  // Linux 6.1; older headers don't name it
#else
constexpr int madvise_collapse = MADV_COLLAPSE;
#endif
#ifndef F_SEAL_FUTURE_WRITE
constexpr int seal_future_write = 0x0010;
#else
constexpr int seal_future_write = F_SEAL_FUTURE_WRITE;
#endif

/// The sum of these lines of /proc/meminfo, in bytes; zero if the system doesn't say.
std::size_t meminfo_bytes(std::initializer_list<std::string_view> names) {
  std::ifstream file("/proc/meminfo");
  std::size_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    for (std::string_view name : names) {
      if (line.starts_with(name)) kilobytes += std::strtoull(line.c_str() + name.size(), nullptr, 10);
    }
  }
  return kilobytes * 1024;
}

/// As the kernel's overcommit rule sees it; memory files are outside that rule. The rule may be that all is granted, as
/// on every Kubernetes node, so no more than the machine has is believed.
bool system_has(std::size_t bytes) {
  const std::size_t total = meminfo_bytes({"MemTotal:", "SwapTotal:"});
  if (total > 0 && bytes > total) return false;
  void* probe = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return probe != MAP_FAILED && ::munmap(probe, bytes) == 0;
}

/// A memory file on small pages costs attention a fifth to a third of its read rate over long contexts. Where the
/// system's policy gives memory files no huge pages, as by default, they can still be asked for one by one.
void take_huge_pages(std::byte* data, std::size_t bytes) {
  (void)::madvise(data, bytes, MADV_HUGEPAGE);                    // advice only
  if (bytes > meminfo_bytes({"MemAvailable:"}) / 10 * 9) return;  // what can be used now without swapping
  for (std::size_t begin = 0; begin + huge_page_bytes <= bytes; begin += huge_page_bytes) {
    data[begin] = std::byte{};  // a range without a page is not collapsed
    if (::madvise(data + begin, huge_page_bytes, madvise_collapse) != 0) return;
  }
}

std::optional<std::pair<std::byte*, int>> allocate_shared(std::size_t bytes) {
  const int file = ::memfd_create("penstock-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return std::nullopt;
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    auto mapping = SharedMapping::map(file, bytes, MappingAccess::read_write);
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | seal_future_write | F_SEAL_SEAL;
    if (mapping && ::fcntl(file, F_ADD_SEALS, seals) == 0) return std::pair(mapping->release(), file);
  }
  ::close(file);
  return std::nullopt;
}

}  // namespace

Result<KvPool> KvPool::allocate(std::size_t bytes) {
  const auto none = [&] {
    return make_error(ErrorCode::resource_exhausted,
                      "the system has no " + std::to_string(bytes >> 20) + " MiB for the KV pool; lower --kv-pool");
  };
  if (!system_has(bytes)) return none();
  if (auto shared = allocate_shared(bytes)) {
    take_huge_pages(shared->first, bytes);
    return KvPool(shared->first, bytes, shared->second);
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return none();
  (void)::madvise(data, bytes, MADV_HUGEPAGE);
  return KvPool(static_cast<std::byte*>(data), bytes, -1);
}

KvPool::~KvPool() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (file_ >= 0) ::close(file_);
}

}  // namespace penstock::worker
