#include "worker/executor/cpu/kv_pool.hpp"

#include <sys/mman.h>

#include <string>

namespace penstock::worker {

Result<KvPool> KvPool::allocate(std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::resource_exhausted,
                      "the system has no " + std::to_string(bytes >> 20) + " MiB for the KV pool; lower --kv-pool");
  }
  (void)::madvise(data, bytes, MADV_HUGEPAGE);  // advice only
  return KvPool(static_cast<std::byte*>(data), bytes);
}

KvPool::~KvPool() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace penstock::worker
