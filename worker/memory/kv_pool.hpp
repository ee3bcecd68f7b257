// The memory of the KV pool: a sealed memory file, so that workers of this user on this host can map it read-only
// (docs/adr/0007), on huge pages if the system gives them. Zeroed. Where memory files are not permitted it is private.
#pragma once

#include <cstddef>
#include <utility>

#include "common/base/result.hpp"

namespace penstock::worker {

class KvPool {
 public:
  /// Error: resource_exhausted, naming the size. Huge pages are taken at once, since a memory file gets none later.
  static Result<KvPool> allocate(std::size_t bytes);

  KvPool(KvPool&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        file_(std::exchange(other.file_, -1)) {}
  KvPool& operator=(KvPool&&) = delete;
  ~KvPool();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// The descriptor of its file, whose first byte is data()[0]; nobody can write to it or cut it. -1: private.
  int file() const { return file_; }

 private:
  KvPool(std::byte* data, std::size_t bytes, int file) : data_(data), bytes_(bytes), file_(file) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int file_ = -1;
};

}  // namespace penstock::worker
