// The memory of the KV pool: one mapping, zeroed on first touch, with huge pages if the system gives them.
#pragma once

#include <cstddef>
#include <utility>

#include "common/base/result.hpp"

namespace penstock::worker {

class KvPool {
 public:
  /// Error: resource_exhausted, naming the size.
  static Result<KvPool> allocate(std::size_t bytes);

  KvPool(KvPool&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  KvPool& operator=(KvPool&&) = delete;
  ~KvPool();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  KvPool(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace penstock::worker
