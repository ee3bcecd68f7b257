// Zeroed memory on a cache-line boundary, of a size fixed at construction. Owned by one object; moved, not copied.
#pragma once

#include <cstddef>
#include <memory>

namespace penstock::kernels::cpu {

class AlignedBuffer {
 public:
  static constexpr std::size_t alignment = 64;

  AlignedBuffer() = default;
  /// Throws std::bad_alloc. Blocks of 2 MiB and more are advised to use huge pages.
  explicit AlignedBuffer(std::size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace penstock::kernels::cpu
