#include "worker/memory/shared_mapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace penstock::worker {

Result<SharedMapping> SharedMapping::map(int file, std::size_t bytes, MappingAccess access) {
  const auto refuse = [] {
    return make_error(ErrorCode::resource_exhausted,
                      std::string("a memory file can't be mapped: ") + std::strerror(errno));
  };
  // A larger reservation has an aligned place in it; what is around it goes back.
  const std::size_t reserved_bytes = bytes + huge_page_bytes;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return refuse();
  const auto begin = reinterpret_cast<std::uintptr_t>(reserved);
  const std::uintptr_t place = (begin + huge_page_bytes - 1) & ~std::uintptr_t{huge_page_bytes - 1};
  const int protection = access == MappingAccess::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(reinterpret_cast<void*>(place), bytes, protection, MAP_SHARED | MAP_FIXED, file, 0);
  if (data == MAP_FAILED) {
    auto error = refuse();
    ::munmap(reserved, reserved_bytes);
    return error;
  }
  constexpr std::uintptr_t page = 4096;
  const std::uintptr_t end = (place + bytes + page - 1) & ~(page - 1);
  if (place > begin) ::munmap(reserved, place - begin);
  if (begin + reserved_bytes > end) ::munmap(reinterpret_cast<void*>(end), begin + reserved_bytes - end);
  return SharedMapping(static_cast<std::byte*>(data), bytes);
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void SharedMapping::drop_pages() {
  if (data_ != nullptr) (void)::madvise(data_, bytes_, MADV_DONTNEED);
}

}  // namespace penstock::worker
