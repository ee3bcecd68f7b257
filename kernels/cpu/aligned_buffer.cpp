#include "kernels/cpu/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace penstock::kernels::cpu {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const std::size_t boundary = bytes >= huge_page ? huge_page : alignment;
  const std::size_t rounded = (bytes + boundary - 1) / boundary * boundary;
  if (rounded < bytes) throw std::bad_alloc();
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(boundary, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  // Streaming weights through 4 KiB pages costs a tenth of the bandwidth; without huge pages it still works.
  if (boundary == huge_page) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  data_.reset(memory);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

}  // namespace penstock::kernels::cpu
